import { expect, it } from "vitest";
import { PagedInitialState } from "../../../src/cacher/catch-up/initial-state.ts";
import { PendingSource } from "../../../src/cacher/catch-up/watch-source.ts";

it("A source that is not known yet is starting, and is then read as the one that replaces it", () => {
  const pending = new PendingSource();
  expect([pending.state, pending.successor, pending.next()]).toEqual([
    ...["starting", undefined, undefined],
  ]);
  const page = { revision: 9, items: [], next: undefined, remaining: undefined };
  const none = () => Promise.reject(new Error("There is one page."));
  const source = new PagedInitialState(page, none, () => {}, new PendingSource());
  pending.resolve(source);
  expect(pending.state).toBe("initial");
  expect(pending.successor).toBe(source);
  expect(pending.next()).toEqual({ batch: undefined, isDone: true });
});
