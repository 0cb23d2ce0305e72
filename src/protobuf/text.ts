/*
 * Text in UTF-8, in Node.js and in browsers, which have no Buffer: there bytes are of the class Uint8Array.
 */

/** Whether there is a Buffer: in Node.js and what is compatible with it. */
export const hasBuffer: boolean = typeof Buffer === "function";

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();

// Not by an import, which bundles for browsers can't resolve.
const isUtf8 = globalThis.process?.getBuiltinModule?.("node:buffer").isUtf8;

/** The text of bytes; undefined if they are not UTF-8. Throws what the engine does for a text that is too long. */
export function textOf(bytes: Uint8Array): string | undefined {
  if (isUtf8 !== undefined) {
    if (!isUtf8(bytes)) return undefined;
    const { buffer, byteOffset, byteLength } = bytes;
    return (
      Buffer.isBuffer(bytes) ? bytes : Buffer.from(buffer, byteOffset, byteLength)
    ).toString();
  }
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

/** Size of text in UTF-8, in bytes. */
export function textSize(text: string): number {
  return hasBuffer ? Buffer.byteLength(text) : encoder.encode(text).byteLength;
}

/** The bytes of text. A lone surrogate has three, which are not UTF-8: a server refuses them, and no other text is sent. */
export function textBytes(text: string): Uint8Array {
  if (!text.isWellFormed()) return Uint8Array.from([...text].flatMap(characterBytes));
  return hasBuffer ? Buffer.from(text) : encoder.encode(text);
}

function characterBytes(character: string): readonly number[] {
  const unit = character.charCodeAt(0);
  if (character.isWellFormed()) return [...encoder.encode(character)];
  return [0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 0x3f), 0x80 | (unit & 0x3f)];
}

/** Bytes with any content, which will be written: a Buffer where there is one. */
export function newBytes(size: number): Uint8Array {
  return hasBuffer ? Buffer.allocUnsafe(size) : new Uint8Array(size);
}
