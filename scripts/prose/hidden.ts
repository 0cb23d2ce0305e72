/** Stands for what is not prose. No rule matches across it. */
const hiddenCharacter = "\0";

/** As many characters that are not prose, with line breaks and blanks as they are. */
export function hidden(text: string): string {
  return text.replaceAll(/\S/g, hiddenCharacter);
}

/** As many blanks, with line breaks as they are. */
export function blank(text: string): string {
  return text.replaceAll(/\S/g, " ");
}

/** Hides what is in backticks, which is code. */
export function blankCode(text: string): string {
  return text.replaceAll(/(`+)(?!`).*?[^`]\1(?!`)/gs, hidden);
}
