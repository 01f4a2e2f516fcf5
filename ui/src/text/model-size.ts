const number = (value: number) => value.toLocaleString("en-GB", { maximumFractionDigits: 3 });

/** Sizes are stored in billions of parameters; below one billion people say millions. */
export function modelSizeText(billions: number): string {
  return billions < 1 ? `${number(billions * 1000)} M` : `${number(billions)} B`;
}
