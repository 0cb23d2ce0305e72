import { expect, test } from "vitest";
import { EventNode, lastOfRevision, lastUpTo } from "../../../src/cacher/state/event-node.ts";
import { event, object } from "../objects.ts";

/** Linked nodes with these revisions. */
function linked(...revisions: readonly number[]): EventNode[] {
  const nodes = revisions.map(
    (revision, i) => new EventNode(event("ADDED", `k${i}`, revision), undefined, revision, i, 0, 0),
  );
  for (const [i, node] of nodes.entries()) node.next = nodes[i + 1];
  return nodes;
}

test("the last node of a revision is that of its last event", () => {
  const nodes = linked(1, 2, 2, 2, 3);
  expect(nodes.map(lastOfRevision).map(({ sequence }) => sequence)).toEqual([0, 3, 3, 3, 4]);
});

test("the last node up to a revision is the one that a reader continues after", () => {
  const [first] = linked(1, 2, 2, 4) as [EventNode];
  const found = [0, 1, 2, 3, 4, 9].map((revision) => lastUpTo(revision, first).sequence);
  expect(found).toEqual([0, 0, 2, 2, 3, 3]);
});

test("an event with its previous object is one object for all readers", () => {
  const before = object("a", 1);
  const node = new EventNode(event("MODIFIED", "a", 2), before, 2, 1, 0, 0);
  expect(node.eventWithPrevious?.previous).toBe(before);
  expect(node.eventWithPrevious).toBe(node.eventWithPrevious);
  const created = new EventNode(event("ADDED", "a", 2), undefined, 2, 1, 0, 0);
  expect(created.eventWithPrevious).toBe(created.event);
  const begin = new EventNode(undefined, before, 1, 0, 0, 0);
  expect([begin.eventWithPrevious, begin.isRaw]).toEqual([undefined, false]);
});
