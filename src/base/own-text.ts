/**
 * The first characters of a text, as a text of its own: the engine's slice refers to the whole text, and keeps it in memory. A
 * character that is cut becomes U+FFFD.
 */
export function ownText(text: string, maxLength: number): string {
  return Buffer.from(text.slice(0, maxLength)).toString();
}
