/** A placeholder for text that is not prose. No rule matches across it. */
const hiddenCharacter = "\0";

/** Replaces text by as many placeholders, and keeps line breaks and blanks. */
export function hidden(text: string): string {
  return text.replaceAll(/\S/g, hiddenCharacter);
}

/** Replaces text by as many blanks, and keeps line breaks. */
export function blank(text: string): string {
  return text.replaceAll(/\S/g, " ");
}

/** Hides what is in backticks, which is code. */
export function blankCode(text: string): string {
  return text.replaceAll(/(`+)(?!`).*?[^`]\1(?!`)/gs, hidden);
}
