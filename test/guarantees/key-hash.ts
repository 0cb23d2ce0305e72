/*
 * XXH64 with seed 0 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) of texts below 32 bytes, without the
 * library that the service uses.
 */

const mask = 2n ** 64n - 1n;
const primes = {
  p1: 0x9e3779b185ebca87n,
  p2: 0xc2b2ae3d27d4eb4fn,
  p3: 0x165667b19e3779f9n,
  p4: 0x85ebca77c2b2ae63n,
  p5: 0x27d4eb2f165667c5n,
};

function rotated(value: bigint, by: bigint): bigint {
  return ((value << by) | (value >> (64n - by))) & mask;
}

/** The hash of a key, which decides about its shard. Throws for a key of 32 bytes or more. */
export function keyHash(key: string): bigint {
  const { p1, p2, p3, p4, p5 } = primes;
  const bytes = Buffer.from(key);
  if (bytes.length >= 32) throw new RangeError(`${JSON.stringify(key)} has 32 bytes or more.`);
  let hash = (p5 + BigInt(bytes.length)) & mask;
  let at = 0;
  for (; at + 8 <= bytes.length; at += 8) {
    const lane = (rotated((bytes.readBigUInt64LE(at) * p2) & mask, 31n) * p1) & mask;
    hash = (rotated(hash ^ lane, 27n) * p1 + p4) & mask;
  }
  if (at + 4 <= bytes.length) {
    hash ^= (BigInt(bytes.readUInt32LE(at)) * p1) & mask;
    hash = (rotated(hash, 23n) * p2 + p3) & mask;
    at += 4;
  }
  for (; at < bytes.length; at++) {
    hash ^= (BigInt(bytes.readUInt8(at)) * p5) & mask;
    hash = (rotated(hash, 11n) * p1) & mask;
  }
  hash ^= hash >> 33n;
  hash = (hash * p2) & mask;
  hash ^= hash >> 29n;
  hash = (hash * p3) & mask;
  return hash ^ (hash >> 32n);
}
