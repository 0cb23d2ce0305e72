import type { Message } from "../foreign/protobuf.ts";
import type { SeenAttributes, SeenEvent, SeenObject } from "./recording.ts";

const types = ["ADDED", "MODIFIED", "DELETED"] as const;

/** Decodes an event by the field numbers of the contract, without code of the service. Throws if it is incomplete. */
export function seenEvent(event: Message): SeenEvent {
  const [object, previous] = [event.message(2), event.message(3)];
  const type = types[event.number(1) - 1];
  if (type === undefined || object === undefined) throw new RangeError("An event is incomplete.");
  return {
    type,
    object: seenObject(object),
    previous: previous === undefined ? undefined : seenObject(previous),
  };
}

/** As `seenEvent`, for an object. */
export function seenObject(object: Message): SeenObject {
  const attributes = object.message(7);
  return {
    key: object.text(1),
    value: object.bytes(2).toString("latin1"),
    createRevision: object.number(3),
    modRevision: object.number(4),
    version: object.number(5),
    ...(attributes && { attributes: seenAttributes(attributes) }),
  };
}

function seenAttributes(attributes: Message): SeenAttributes {
  return { labels: entriesOf(attributes, 1), fields: entriesOf(attributes, 2) };
}

/** Those of a map. */
function entriesOf(message: Message, field: number): Record<string, string> {
  return Object.fromEntries(
    message.messages(field).map((entry) => [entry.text(1), entry.text(2)] as const),
  );
}
