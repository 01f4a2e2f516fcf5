/** Titles of the findings of a diagnosis, by kind. Used by the job page and the card, so that both say the same. */
const TITLES: Record<string, string> = {
  stalled: "Stalled.",
  degraded: "Training process problem.",
  diverging: "Diverging.",
  no_learning: "The loss does not fall.",
  straggler: "One rank is slow.",
  data_starved: "Waiting for data.",
  throttled: "GPU throttled.",
  out_of_memory_soon: "Memory is running out.",
};

/** A kind of a newer version is written as it is named. */
export const findingTitle = (kind: string) => TITLES[kind] ?? `${kind.charAt(0).toUpperCase()}${kind.slice(1).replaceAll("_", " ")}.`;
