/** Maximum size of a bearer token, in bytes: servers accept no larger headers. */
export const maxTokenBytes = 16 * 1024;

/** What a token is, for messages that must not have the text itself, which may be almost one. */
export const tokenRule = `at most ${maxTokenBytes} printable ASCII characters without spaces`;

/** Whether a text can be sent as a bearer token. */
export function isToken(text: unknown): text is string {
  return typeof text === "string" && text.length <= maxTokenBytes && /^[\x21-\x7e]+$/.test(text);
}
