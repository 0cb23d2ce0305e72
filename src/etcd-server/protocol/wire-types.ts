import { type ProtoField, protoFieldsOf } from "../../etcd/client/requests.ts";
import {
  LENGTH_DELIMITED,
  MessageCursor,
  VARINT,
  WireFault,
} from "../../protobuf/message-cursor.ts";

interface Field {
  readonly number: number;
  /** As etcd's errors name it. */
  readonly name: string;
  readonly wireType: number;
  /** The message in it; undefined: it is a number, bytes or text. */
  readonly message: string | undefined;
  /** Whether it may have its numbers one behind the other in one value. */
  readonly isPackable: boolean;
}

/** Maximum depth of messages in a message, as the decoder of the protos has it. */
const maxDepth = 100;

const fieldsByMessage = new Map<string, ReadonlyMap<number, Field>>();

/**
 * Checks a request, of which `name` is the message. The decoder of the protos knows a field by its number alone, whatever type
 * the bytes say, so it could find another key than what has translated the request before. Throws a WireFault for a field of
 * another type than its proto says, as etcd, and for bytes that are no message.
 */
export function checkWireTypes(name: string, message: Buffer): void {
  check(new MessageCursor(message), name, 0);
}

function check(cursor: MessageCursor, name: string, depth: number): void {
  if (depth > maxDepth) throw new WireFault("has messages nested too deeply");
  const fields = fieldsOf(name);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    const [field, wireType] = [fields.get(tag >>> 3), tag & 7];
    if (field === undefined) cursor.skip(tag);
    else if (wireType === LENGTH_DELIMITED && field.isPackable) cursor.content();
    else if (wireType !== field.wireType) {
      throw new WireFault(`proto: wrong wireType = ${wireType} for field ${field.name}`);
    } else if (field.message === undefined) cursor.skip(tag);
    else {
      const outer = cursor.enter();
      check(cursor, field.message, depth + 1);
      cursor.leave(outer);
    }
  }
}

function fieldsOf(name: string): ReadonlyMap<number, Field> {
  const known = fieldsByMessage.get(name);
  if (known !== undefined) return known;
  const fields = new Map(protoFieldsOf(name).map((proto) => [proto.number, fieldOf(proto)]));
  fieldsByMessage.set(name, fields);
  return fields;
}

function fieldOf({ number, name, type, typeName, label }: ProtoField): Field {
  const isNumber = !["TYPE_BYTES", "TYPE_STRING", "TYPE_MESSAGE"].includes(type);
  return {
    number,
    name: name.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    wireType: isNumber ? VARINT : LENGTH_DELIMITED,
    message: type === "TYPE_MESSAGE" ? typeName : undefined,
    isPackable: isNumber && label === "LABEL_REPEATED",
  };
}
