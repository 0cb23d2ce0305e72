/**
 * How often a protobuf message holds a field that is length-delimited, without looking into any. The
 * number is below 16, whose tags take one byte.
 */
export function countField(message: Uint8Array, field: number): number {
  const wanted = (field << 3) | 2;
  let count = 0;
  let at = 0;
  while (at < message.length) {
    const tag = message[at++] ?? 0;
    if (tag === wanted) count++;
    let value = 0;
    let scale = 1;
    for (;;) {
      const byte = message[at++] ?? 0;
      value += (byte & 0x7f) * scale;
      scale *= 128;
      if (byte < 0x80) break;
    }
    // A length leads past what it measures; a number has been read.
    if ((tag & 7) === 2) at += value;
  }
  return count;
}
