import type { MessageTypeDefinition } from "@grpc/proto-loader";
import { describe, expect, test } from "vitest";
import { WireFault } from "../../src/protobuf/message-cursor.ts";
import { MessageTypes } from "../../src/protobuf/message-types.ts";
import { protoJson } from "../../src/wire/generated/proto-json.ts";
import {
  leaseMethods,
  listWatchMethods,
  messageType,
  writeMethods,
} from "../../src/wire/methods.ts";
import { definitions } from "../../src/wire/services.ts";
import fc, { runs } from "../property.ts";

interface Definition {
  readonly nested?: Readonly<Record<string, Definition>>;
  readonly fields?: Readonly<Record<string, { type: string; rule?: string; keyType?: string }>>;
  readonly oneofs?: Readonly<Record<string, { readonly oneof: readonly string[] }>>;
  readonly values?: Readonly<Record<string, number>>;
}

function find(full: string): Definition | undefined {
  let at: Definition | undefined = protoJson;
  for (const part of full.split(".")) at = at?.nested?.[part];
  return at;
}

const scalars: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  string: fc.string({ unit: "grapheme", maxLength: 20 }),
  bytes: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)),
  bool: fc.boolean(),
  int32: fc.integer(),
  int64: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }).map(String),
  fixed64: fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map(String),
};

/** Messages of a type, as a caller passes them: at most one field of each oneof. */
function messages(full: string, depth: number = 3): fc.Arbitrary<Record<string, unknown>> {
  const { fields = {}, oneofs = {} } = find(full) as Definition;
  const scope = full.slice(0, full.lastIndexOf("."));
  const values: Record<string, fc.Arbitrary<unknown>> = {};
  for (const [name, { type, rule, keyType }] of Object.entries(fields)) {
    const value = valuesOf(type, scope, depth);
    if (value === undefined) continue;
    values[name] =
      keyType !== undefined
        ? fc.dictionary(
            fc.string({ maxLength: 5 }).filter((key) => key !== "__proto__"),
            value,
            {
              noNullPrototype: true,
            },
          )
        : rule === "repeated"
          ? fc.array(value, { maxLength: 3 })
          : value;
  }
  const exclusive = Object.values(oneofs).map(({ oneof }) => oneof);
  return fc.record(values, { requiredKeys: [] }).map((message) => {
    for (const names of exclusive) {
      for (const name of names.filter((each) => each in message).slice(1)) delete message[name];
    }
    return message;
  });
}

function valuesOf(type: string, scope: string, depth: number): fc.Arbitrary<unknown> | undefined {
  if (scalars[type] !== undefined) return scalars[type];
  const full = find(`${scope}.${type}`) === undefined ? type : `${scope}.${type}`;
  const { values } = find(full) as Definition;
  if (values !== undefined) return fc.constantFrom(...Object.keys(values));
  return depth === 0 ? undefined : messages(full, depth - 1);
}

function loaderOf(full: string): MessageTypeDefinition<object, object> {
  return definitions[full] as unknown as MessageTypeDefinition<object, object>;
}

const all = [
  ...["GetRequest", "GetResponse", "BatchGetResponse", "ListRequest", "ListResponse"],
  ...["WatchRequest", "WatchResponse", "SubscribeRequest", "SubscribeResponse"],
  ...["HistoryRequest", "HistoryResponse", "ResourcesResponse", "PutRequest", "PutResponse"],
  ...["DeleteRequest", "TransactRequest", "TransactResponse", "KeepAliveResponse"],
].map((name) => `watchfanout.v1.${name}`);

describe("A message that the client", () => {
  test.each([...all, "google.rpc.Status", "google.rpc.ErrorInfo"])(
    "sends is what proto-loader would send, and one that it receives what proto-loader would read: %s",
    (name) => {
      const own = messageType<object, object>(name);
      const loader = loaderOf(name);
      fc.assert(
        fc.property(messages(name), (message) => {
          const sent = loader.serialize(message);
          expect(own.decode(sent)).toStrictEqual(loader.deserialize(sent));
          expect(loader.deserialize(Buffer.from(own.encode(message)))).toStrictEqual(
            loader.deserialize(sent),
          );
        }),
        { numRuns: runs(200) },
      );
    },
  );

  test("receives with fields and enum values of a later version is read without them", () => {
    const event = Buffer.from([0x12, 0x02, 0x08, 99, 0xfa, 0x07, 0x01, 0x00, 0x08, 5]);
    expect(listWatchMethods.Watch.decode(event)).toMatchObject({
      ...{ revision: "5", _revision: "revision" },
      events: [{ type: 99, object: null }],
    });
  });

  test("receives with a key __proto__ is read as any other", () => {
    const attributes = loaderOf("watchfanout.v1.Attributes");
    const sent = Buffer.concat([
      attributes.serialize({ labels: { a: "b" } }),
      Buffer.from("0a0e0a095f5f70726f746f5f5f120178", "hex"),
    ]);
    const { labels } = messageType<object, { labels: object }>("watchfanout.v1.Attributes").decode(
      sent,
    );
    expect(Object.entries(labels)).toEqual([
      ["a", "b"],
      ["__proto__", "x"],
    ]);
  });

  test.each([
    ["is truncated", "0a"],
    ["has a length beyond its end", "1205"],
    ["has text that is not UTF-8", "2201ff"],
  ])("receives and that %s is refused", (_, hex) => {
    expect(() => listWatchMethods.Watch.decode(Buffer.from(hex, "hex"))).toThrow(WireFault);
  });

  test("sends has no text in place of a lone surrogate: the server refuses it", () => {
    const sent = listWatchMethods.Get.encode({ key: "é\ud800z" });
    expect(Buffer.from(sent).toString("hex")).toBe("1206c3a9eda0807a");
  });

  test("sends has what can be no value refused", () => {
    expect(() => listWatchMethods.Get.encode({ view: "VIEW_X" as "VIEW_FULL" })).toThrow(
      "There is no enum value VIEW_X.",
    );
    expect(() => writeMethods.Put.encode({ value: "text" })).toThrow("Uint8Array");
  });
});

test("The methods have the paths of the services.", () => {
  expect(listWatchMethods.Subscribe.path).toBe("/watchfanout.v1.ListWatchService/Subscribe");
  expect(leaseMethods.KeepAlive.path).toBe("/watchfanout.v1.LeaseService/KeepAlive");
});

test("Types, services and keys of maps that are not known are refused.", () => {
  const types = new MessageTypes({
    nested: {
      A: { fields: { b: { type: "Gone", id: 1 } } },
      B: { fields: { c: { keyType: "int32", type: "string", id: 1 } } },
    },
  });
  expect(() => types.message("A")).toThrow("There is no type Gone in A.");
  expect(() => types.message("B")).toThrow("A map of int32.");
  expect(() => types.methods("S")).toThrow("There is no service S.");
});
