/** How often a protobuf message holds a field that is length-delimited, without looking into any. */
export function countField(message: Uint8Array, field: number): number {
  const wanted = (field << 3) | 2;
  let count = 0;
  scan(message, (tag) => {
    if (tag === wanted) count++;
  });
  return count;
}

/** The number that a field holds, 0 if it is not there. */
export function numberField(message: Uint8Array, field: number): number {
  const wanted = field << 3;
  let found = 0;
  scan(message, (tag, value) => {
    if (tag === wanted) found = value;
  });
  return found;
}

/** Tells each field's tag, and its number or length. Of fields below 16, whose tags take one byte. */
function scan(message: Uint8Array, see: (tag: number, value: number) => void): void {
  let at = 0;
  while (at < message.length) {
    const tag = message[at++] ?? 0;
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = message[at++] ?? 0;
      value += (byte & 0x7f) * scale;
      scale *= 128;
      if (byte < 0x80) break;
    }
    see(tag, value);
    // A length leads past what it measures; a number has been read.
    if ((tag & 7) === 2) at += value;
  }
}
