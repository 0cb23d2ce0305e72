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

/** Cuts a text to a maximum length, in UTF-16 code units. */
export function cutText(text: string, maxLength: number): string {
  return text.length <= maxLength ? text : `${text.slice(0, maxLength - 1)}…`;
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

/** A number of bytes, such as `1.5 MiB`. */
export function bytesOf(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  const amount = bytes / 1_024 ** unit;
  return `${amount < 10 && unit > 0 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

/** A duration, such as `4m12s`. */
export function durationOf(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m${Math.floor(seconds % 60)}s`;
  const hours = Math.floor(seconds / 3_600);
  if (hours < 24) return `${hours}h${Math.floor((seconds % 3_600) / 60)}m`;
  return `${Math.floor(hours / 24)}d${hours % 24}h`;
}

/** A time in milliseconds, such as `3.25 ms` or `1.20 s`. */
export function msOf(ms: number): string {
  return ms < 1_000 ? `${Number(ms.toPrecision(3))} ms` : `${(ms / 1_000).toFixed(2)} s`;
}

/** A count, such as `12,345`. */
export function countOf(count: number): string {
  return count.toLocaleString("en");
}

/** A count of things, such as `1 stream` or `12,345 streams`. */
export function quantity(count: number, name: string): string {
  return `${countOf(count)} ${name}${count === 1 ? "" : "s"}`;
}
