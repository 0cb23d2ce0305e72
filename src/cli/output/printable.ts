const utf8 = new TextDecoder("utf-8", { fatal: true });

/**
 * Control characters (C0, delete, C1), line and paragraph separators, what turns the direction of
 * writing or can't be seen, and halves of surrogate pairs: a terminal would act on them, or a reader be
 * misled by them.
 */
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

const short: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Text that is safe to show on a terminal and takes one line. */
export function printableText(text: string): string {
  return text.replace(unprintable, (character) => short[character] ?? escaped(character));
}

/** Bytes in the same way: as text if they are UTF-8, otherwise what is not ASCII as `\xNN`. */
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
