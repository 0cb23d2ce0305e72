import { BareStatus } from "../foreign/bare-grpc.ts";
import { encode, type Message } from "../foreign/protobuf.ts";
import type { SeenObject } from "../guarantees/recording.ts";
import { seenObject } from "../guarantees/wire-objects.ts";
import type { Compare, Input, Outcome, Output } from "./history.ts";
import { type Caller, unary } from "./service-client.ts";

const writeService = "/watchfanout.v1.WriteService";
const listWatchService = "/watchfanout.v1.ListWatchService";

/**
 * Calls Transact, DeletePrefix, BatchGet and Get. The first part of a key, up to the slash, is the name of its resource. The
 * numbers of the fields are those of the contract.
 */
export const transactCaller: Caller = async (url, input) => {
  try {
    return await called(url, input);
  } catch (error) {
    if (!(error instanceof BareStatus)) throw error;
    return outcomeOf(error);
  }
};

async function called(url: string, input: Input): Promise<Output> {
  const { puts = [], deletes = [], compares = [], deletePrefix, range } = input;
  if (deletePrefix !== undefined) return deletedPrefix(url, input, deletePrefix);
  if (puts.length + deletes.length + compares.length > 0) return transacted(url, input);
  if (range.keys !== undefined) return batchGot(url, range.keys);
  const { 1: resource, 2: key } = nameOf(range.key);
  const response = await unary(url, `${listWatchService}/Get`, { 1: resource, 2: key });
  return { succeeded: true, revision: response.number(1), after: found(resource, response, 2) };
}

async function transacted(url: string, input: Input): Promise<Output> {
  const { puts = [], deletes = [], compares = [], requestId, validateOnly = false } = input;
  const operations = [
    ...puts.map(({ key, value }) => {
      const put = encode({ 1: Buffer.from(value, "latin1") });
      return encode({ ...nameOf(key), 3: put });
    }),
    ...deletes.map((key) => encode({ ...nameOf(key), 4: encode({}) })),
  ];
  const keys = [...puts.map(({ key }) => key), ...deletes];
  const response = await unary(url, `${writeService}/Transact`, {
    ...{ 1: compares.map((compare) => encode(compareFields(compare))), 2: operations },
    ...{ 3: true, 4: true, 5: validateOnly || undefined, 6: requestId },
  });
  const succeeded = response.number(1) === 1;
  const output = { succeeded, revision: response.number(2) };
  if (!succeeded) {
    const results = response.messages(5);
    if (results.length !== compares.length) throw new RangeError("A compare has no result.");
    return { ...output, compares: results.map((each, i) => comparedIn(each, compares[i])) };
  }
  if (validateOnly) return output;
  const results = response.messages(4);
  if (results.length !== keys.length) throw new RangeError("An operation has no result.");
  const all = (field: number): SeenObject[] => {
    const objects = results.flatMap((each, i) => found(nameOf(keys[i])[1], each, field));
    return objects.sort(byKey);
  };
  return { ...output, after: all(1), before: all(2) };
}

async function deletedPrefix(url: string, input: Input, deletePrefix: string): Promise<Output> {
  const { 1: resource, 2: prefix } = nameOf(deletePrefix);
  const response = await unary(url, `${writeService}/DeletePrefix`, {
    ...{ 1: resource, 2: prefix || undefined, 3: prefix === "" || undefined },
    ...{ 5: input.validateOnly || undefined, 6: input.requestId },
  });
  return { succeeded: true, revision: response.number(1), deleted: response.number(2) };
}

async function batchGot(url: string, keys: readonly string[]): Promise<Output> {
  const response = await unary(url, `${listWatchService}/BatchGet`, {
    1: keys.map((key) => encode(nameOf(key))),
  });
  const objects = response.messages(2);
  if (objects.length !== keys.length) throw new RangeError("An object of a BatchGet is missing.");
  const after = objects.flatMap((each, i) => found(nameOf(keys[i])[1], each, 1));
  return { succeeded: true, revision: response.number(1), after };
}

function nameOf(key = ""): { readonly 1: string; readonly 2: string } {
  const end = key.indexOf("/");
  return { 1: key.slice(0, end), 2: key.slice(end + 1) };
}

function found(resource: string, message: Message, field: number): SeenObject[] {
  return message.messages(field).map((object) => {
    const seen = seenObject(object);
    return { ...seen, key: `${resource}/${seen.key}` };
  });
}

function compareFields(compare: Compare): Parameters<typeof encode>[0] {
  const name = nameOf(compare.key);
  if ("exists" in compare) return { ...name, 3: compare.exists };
  if ("modRevision" in compare) return { ...name, 4: compare.modRevision };
  if ("createRevision" in compare) return { ...name, 5: compare.createRevision };
  return { ...name, 6: Buffer.from(compare.value, "latin1") };
}

function comparedIn(
  result: Message,
  compare: Compare | undefined,
): NonNullable<Output["compares"]>[number] {
  const [object] = found(nameOf(compare?.key)[1], result, 2);
  return { held: result.number(1) === 1, ...(object && { object }) };
}

function byKey(one: SeenObject, other: SeenObject): number {
  return one.key < other.key ? -1 : 1;
}

/** Only the service itself can say that nothing was written. */
function outcomeOf({ reason, metadata, message }: BareStatus): Outcome {
  if (reason === "OBJECT_NOT_FOUND") {
    return { succeeded: true, revision: Number(metadata["revision"]), after: [] };
  }
  if (reason === "REQUEST_ID_REUSED") return { succeeded: false, isReused: true };
  if (reason === "INVALID_REQUEST") throw new Error(`A request of the test is refused: ${message}`);
  return reason === "" || reason === "OUTCOME_UNKNOWN" || reason === "INTERNAL"
    ? "unknown"
    : "refused";
}
