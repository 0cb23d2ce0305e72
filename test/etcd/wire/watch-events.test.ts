import { expect, test } from "vitest";
import { etcdFramesOf } from "../../../src/etcd/wire/watch-events.ts";
import { watchIdField, withFieldsInEach } from "../../../src/etcd/wire/watch-response.ts";
import { WatchBatch, WatchEvent } from "../../../src/model/event.ts";
import { StoredObject } from "../../../src/model/object.ts";
import { encode, Message } from "../../foreign/protobuf.ts";

const options = { withoutPuts: false, withoutDeletes: false, withPrevious: false, fragment: false };

function batchOf(revisions: readonly number[], bytes: number = 1): WatchBatch {
  const events = revisions.map((revision) => {
    const object = new StoredObject("k", Buffer.alloc(bytes, "v"), revision, revision, 1, 0n);
    return new WatchEvent("ADDED", object, undefined);
  });
  return new WatchBatch((revisions.at(-1) ?? 0) + 10, events);
}

const header = (revision: number): Buffer => encode({ 1: encode({ 3: revision }) });

/** The messages of a frame. */
function messagesIn(frame: Uint8Array): Message[] {
  const bytes = Buffer.from(frame);
  const messages: Message[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = at + 5 + bytes.readUInt32BE(at + 1);
    messages.push(new Message(bytes.subarray(at + 5, end)));
    at = end;
  }
  return messages;
}

/** Watch id, revision of the header, and number of events of each message, by frame. */
function responsesOf(batch: WatchBatch, from: number = 0, id: bigint = 0n): unknown {
  const frames = etcdFramesOf(batch, options, Buffer.from("/a/"), header, from);
  return frames.map((frame) =>
    messagesIn(Buffer.concat(withFieldsInEach(frame, watchIdField(id)))).map((message) => [
      message.number(2),
      message.message(1)?.number(3),
      message.all(11).length,
    ]),
  );
}

test("a few revisions have a response each, in one frame, and only the last has the revision of the batch", () => {
  expect(responsesOf(batchOf([5, 6, 6, 9]), 0, 300n)).toEqual([
    [
      [300, 5, 1],
      [300, 6, 2],
      [300, 19, 1],
    ],
  ]);
  expect(responsesOf(batchOf([5, 6, 6, 9]), 6)).toEqual([
    [
      [0, 6, 2],
      [0, 19, 1],
    ],
  ]);
  expect(responsesOf(batchOf([5]))).toEqual([[[0, 15, 1]]]);
});

test("many revisions are one response, as for a watch that is behind", () => {
  expect(responsesOf(batchOf([1, 2, 3, 4, 5, 6, 7, 8, 9]), 0, 1n)).toEqual([[[1, 19, 9]]]);
});

test("another watch-fanout gets all revisions in one response, with the revision of the first event", () => {
  const follower = { ...options, isFollower: true };
  const headersOf = (batch: WatchBatch): unknown =>
    etcdFramesOf(batch, follower, Buffer.from("/a/"), header, 0)
      .flatMap(messagesIn)
      .map((message) => [message.message(1)?.number(3), message.all(11).length]);
  expect(headersOf(batchOf([5, 6, 6, 9]))).toEqual([[5, 4]]);
  expect(headersOf(batchOf([1, 2, 3, 4, 5, 6, 7, 8, 9]))).toEqual([[1, 9]]);
});

test("large responses are frames of their own", () => {
  expect(responsesOf(batchOf([5, 6], 3_000), 0, -2n)).toEqual([[[-2, 5, 1]], [[-2, 16, 1]]]);
});

test("the previous value of an event is left out where etcd has compacted it, and needed elsewhere", () => {
  const before = new StoredObject("k", Buffer.from("old"), 2, 4, 2, 0n);
  const after = new StoredObject("k", Buffer.from("new"), 2, 6, 3, 0n);
  const batch = new WatchBatch(6, [new WatchEvent("MODIFIED", after, before)]);
  const previousOf = (compacted: number): unknown =>
    etcdFramesOf(
      batch,
      { ...options, withPrevious: true },
      Buffer.from("/a/"),
      header,
      0,
      compacted,
    )
      .flatMap(messagesIn)
      .map((message) => message.message(11)?.message(3)?.number(3));
  expect(previousOf(0)).toEqual([4]);
  expect(previousOf(5)).toEqual([4]);
  expect(previousOf(6)).toEqual([undefined]);
});
