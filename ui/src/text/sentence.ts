/** Ends a reason with a full stop, unless it brings its own end. */
export const sentence = (text: string) => (text === "" || /[.!?]$/.test(text) ? text : `${text}.`);
