import type { Cacher } from "../../src/cacher/cacher.ts";

/** Starts the Cacher and resolves once it is synced with the store. */
export async function startReady(cacher: Cacher): Promise<Cacher> {
  const ready = new Promise<void>((resolve) => cacher.onReadyChange(() => resolve()));
  cacher.start();
  await ready;
  return cacher;
}
