/** The command that every page names when it says how to train; the same as in docs/training.md. */
export const TRAIN_COMMAND = "bloom train --train-path my-text.txt";
