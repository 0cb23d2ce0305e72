const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Control characters (C0, delete, C1), line and paragraph separators, characters that are invisible or change the writing
 * direction, and unpaired surrogates. They would control a terminal or mislead a reader.
 */
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const short: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Escapes text so that it is safe on a terminal and fits one line. */
export function printableText(text: string): string {
  return text.replace(unprintable, (character) => short[character] ?? escaped(character));
}

/** Escapes bytes in the same way: as text if they are UTF-8, otherwise with `\xNN` for non-ASCII bytes. */
export function printableBytes(bytes: Uint8Array): string {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    return Buffer.from(bytes)
      .toString("latin1")
      .replace(/[^ -~]/g, hexByte);
  }
  return printableText(text);
}

function escaped(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

function hexByte(character: string): string {
  return `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
}
