import xxhash from "xxhash-wasm";

const { h64ToString } = await xxhash();

/**
 * The hash of a key: XXH64 with seed 0 of its bytes in UTF-8, as 16 hexadecimal digits, which makes the order of the texts
 * that of the hashes.
 */
export function hashOf(key: string): string {
  return h64ToString(key);
}
