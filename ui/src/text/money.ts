/** How amounts are written: US dollars, cents only where they matter. */

type Range = { low: number; high: number };

const CENTS_BELOW = 100;

const digits = (value: number, cents: boolean) =>
  value.toLocaleString("en-GB", cents ? { minimumFractionDigits: 2, maximumFractionDigits: 2 } : { maximumFractionDigits: 0 });

/** "$0", "under $0.01", "$0.42", "$1,234". */
export function moneyText(value: number): string {
  if (value === 0) return "$0";
  if (value > 0 && value < 0.005) return "under $0.01";
  return `$${digits(value, value < CENTS_BELOW && !Number.isInteger(value))}`;
}

/** "$2.40–3.10": from the least to the most; one amount where both are written the same. */
export function moneyRange({ low, high }: Range): string {
  if (high < 0.005) return moneyText(high);
  const cents = high < CENTS_BELOW;
  const [least, most] = [digits(low, cents), digits(high, cents)];
  return least === most ? `$${most}` : `$${least}–${most}`;
}

/** "$0.95 / h". */
export const hourlyText = (rate: Range) => `${moneyRange(rate)} / h`;
