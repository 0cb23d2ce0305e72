import { once } from "node:events";
import { expect, test, vi } from "vitest";
import { listWatchService } from "../../../src/wire/services.ts";
import { RawConnection } from "../http2/raw-connection.ts";
import { ManualTimers } from "../limits/manual-timers.ts";
import { ScriptedResource } from "../scripted-resource.ts";
import { serve } from "../served.ts";

const { List } = listWatchService;

test("Large selectors of Lists from one packet are parsed in time slices, in rotation with other connections", async () => {
  const clock = new ManualTimers();
  const resource = new ScriptedResource();
  const { server } = await serve(new Map([["things", resource]]), clock);
  const count = 100;
  /** The event-loop turn in which each was parsed, and its connection. */
  const read: { turn: number; prefix: string }[] = [];
  let turn = 0;
  const nextTurn = (): void => {
    turn++;
    if (read.length < count + 1) setImmediate(nextTurn);
  };
  setImmediate(nextTurn);
  vi.spyOn(resource, "select").mockImplementation((...selectors: readonly string[]): undefined => {
    const [labelSelector = ""] = selectors;
    read.push({ turn, prefix: labelSelector.slice(0, 1) });
    // Longer than a time slice.
    clock.advance(10);
  });
  const list = (prefix: string): Buffer =>
    List.requestSerialize({ resource: "things", label_selector: prefix.padEnd(5_000, "x") });
  const other = new RawConnection(server.port);
  await once(other.session, "connect");
  const raw = new RawConnection(server.port);
  for (let i = 0; i < count; i++) raw.call(List.path, list("a"));
  while (read.length === 0) await new Promise((resolve) => setImmediate(resolve));
  other.call(List.path, list("b"));
  while (read.length < count + 1) await new Promise((resolve) => setImmediate(resolve));
  const turns = new Set(read.map((each) => each.turn));
  expect(turns.size).toBeGreaterThan(count * 0.9);
  expect(read.findIndex(({ prefix }) => prefix === "b")).toBeLessThan(count);
});
