import { readdir } from "node:fs/promises";
import { expect, onTestFinished, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import type { CacherOptions } from "../../../src/cacher/options.ts";
import { connect } from "../../../src/client/connect.ts";
import type { ResourceInformerOptions } from "../../../src/client/typed/typed-resource.ts";
import type { ValueCodec } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { CachedServer } from "../cached-server.ts";
import { RecordedHandler, texts } from "./informed.ts";

/** A service, and what its clients list. */
export async function served(options: Partial<CacherOptions> = {}, port = 0, hasHistoryId = true) {
  const storage = new MemoryStorage({ clock: systemClock });
  if (!hasHistoryId) vi.spyOn(storage, "historyId").mockResolvedValue("");
  const server = await CachedServer.over(storage, options, port);
  onTestFinished(() => server.close());
  const list = vi.spyOn(server.cacher, "list");
  // Others ask only for the revision, or for the history.
  const lists = () => list.mock.calls.filter(([{ limit }]) => limit !== 1).length;
  const put = async (key: string, value: string) => {
    await storage.put({ key, value: Buffer.from(value) });
  };
  return { storage, server, put, lists };
}

/** An informer of a program that is started. */
export function started(
  address: string,
  folder: string,
  options: ResourceInformerOptions<string> = {},
  codec: ValueCodec<string> = texts,
) {
  const client = connect({ address });
  const informer = client.resource("things", codec).informer({ keep: { folder }, ...options });
  const handler = new RecordedHandler();
  informer.addEventHandler(handler);
  informer.start();
  const stop = async (): Promise<void> => {
    await informer.stop();
    await client.close();
  };
  onTestFinished(stop);
  const synced = () => informer.waitForSync(AbortSignal.timeout(60_000));
  return { informer, handler, stop, synced };
}

/** Waits until a state is kept in a folder. */
export const stored = (folder: string): Promise<void> =>
  vi.waitFor(async () => {
    expect((await readdir(folder)).some((name) => name.endsWith(".snapshot"))).toBe(true);
  }, 60_000);
