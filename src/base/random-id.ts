/** A random UUID. Pages that were not loaded by TLS have no `randomUUID`: there it is another text of as many random bits. */
export function randomId(): string {
  const { crypto } = globalThis;
  if (typeof crypto.randomUUID === "function") return crypto.randomUUID();
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join(
    "-",
  );
}
