/** The state of a promise: pending, resolved or rejected. */
export async function outcome(promise: Promise<unknown>): Promise<unknown> {
  const pending = Symbol("pending");
  const first = await Promise.race([promise.catch((error: unknown) => error), turns(pending)]);
  return first === pending ? "pending" : first;
}

async function turns<T>(value: T): Promise<T> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
  return value;
}
