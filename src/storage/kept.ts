/**
 * The value as it is kept: itself, unless it is a small view of a large buffer (Node cuts small ones
 * out of shared pools) which keeping it would hold in memory whole.
 */
export function kept(value: Uint8Array): Uint8Array {
  return value.buffer.byteLength <= 2 * value.byteLength ? value : new Uint8Array(value);
}
