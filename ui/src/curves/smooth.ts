/**
 * An exponential moving average with its start corrected, so that the first points are not pulled towards zero.
 * A weight of 0 changes nothing; 0.99 follows only the trend.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  if (weight <= 0) return [...values];
  let average = 0;
  let share = 1;
  return values.map((value) => {
    average = average * weight + value * (1 - weight);
    share *= weight;
    return average / (1 - share);
  });
}
