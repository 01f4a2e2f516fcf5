/** Cuts a command line into its words as a shell would, as far as people write them: spaces, quotes, backslashes. */
export function commandWords(text: string): { words: string[]; mistake: string | null } {
  const words: string[] = [];
  let word: string | null = null;
  let quote: string | null = null;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text.charAt(at);
    if (quote !== null) {
      if (sign === quote) quote = null;
      else if (sign === "\\" && quote === '"' && /["\\]/.test(text.charAt(at + 1))) word += text.charAt((at += 1));
      else word += sign;
    } else if (sign === '"' || sign === "'") {
      quote = sign;
      word ??= "";
    } else if (/\s/.test(sign)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? "") + (sign === "\\" ? text.charAt((at += 1)) : sign);
    }
  }
  if (word !== null) words.push(word);
  return { words, mistake: quote === null ? null : `A quote is not closed: ${quote}` };
}

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Words as one line that is cut into the same words again. */
export const commandText = (words: readonly string[]) =>
  words.map((word) => (PLAIN.test(word) ? word : `"${word.replaceAll(/["\\]/g, (sign) => `\\${sign}`)}"`)).join(" ");
