import { BareGrpc, BareStatus } from "../foreign/bare-grpc.ts";
import { encode, type Fields, type Message } from "../foreign/protobuf.ts";
import type { SeenObject } from "../guarantees/recording.ts";
import { seenObject } from "../guarantees/wire-objects.ts";
import type { Input, Outcome, Output } from "./history.ts";

/** One call over a connection of its own, by a contract. */
export type Caller = (url: string, input: Input) => Promise<Outcome>;

/** How long a call may take, in milliseconds. */
const deadlineMs = 2_000;

/** Of lists: small, so that most have several pages. */
const pageSize = 2;

const listWatch = "/watchfanout.v1.ListWatchService";

/** Makes one unary call. Rejects with a BareStatus without a response. */
export async function unary(url: string, path: string, fields: Fields): Promise<Message> {
  const grpc = new BareGrpc(url);
  const late = setTimeout(() => grpc.close(), deadlineMs);
  try {
    return await grpc.unary(path, encode(fields));
  } finally {
    clearTimeout(late);
    grpc.close();
  }
}

/** Calls the services of the contract. Its writes are of one key. `resource` is the name of the resource. */
export function serviceCaller(resource: string): Caller {
  return async (url, input) => {
    try {
      return await called(url, resource, input);
    } catch (error) {
      if (!(error instanceof BareStatus)) throw error;
      return outcomeOf(error, input);
    }
  };
}

async function called(url: string, resource: string, input: Input): Promise<Output> {
  const { condition, puts = [], deletes = [], range } = input;
  const [put] = puts;
  if (put !== undefined) {
    const value = Buffer.from(put.value, "latin1");
    const fields = { 1: resource, 2: put.key, 3: value, 4: condition?.modRevision };
    const response = await unary(url, "/watchfanout.v1.WriteService/Put", fields);
    return { succeeded: true, revision: response.number(1), after: objectsIn(response) };
  }
  const [deleted] = deletes;
  if (deleted !== undefined) {
    const fields = { 1: resource, 2: deleted, 3: condition?.modRevision };
    const response = await unary(url, "/watchfanout.v1.WriteService/Delete", fields);
    return { succeeded: true, revision: response.number(1), before: objectsIn(response) };
  }
  if (range.isPrefix) return listed(url, resource, range.key);
  const response = await unary(url, `${listWatch}/Get`, { 1: resource, 2: range.key });
  return { succeeded: true, revision: response.number(1), after: objectsIn(response) };
}

/** All pages, which are of one revision. */
async function listed(url: string, resource: string, prefix: string): Promise<Output> {
  const after: SeenObject[] = [];
  for (let token = ""; ; ) {
    const fields = { 1: resource, 2: prefix, 7: pageSize, 8: token === "" ? undefined : token };
    const response = await unary(url, `${listWatch}/List`, fields);
    after.push(...objectsIn(response));
    token = response.text(3);
    if (token === "") return { succeeded: true, revision: response.number(1), after };
  }
}

function objectsIn(response: Message): SeenObject[] {
  return response.messages(2).map(seenObject);
}

/** Only the service itself can say that nothing was written. */
function outcomeOf({ reason, metadata }: BareStatus, { condition }: Input): Outcome {
  if (reason === "OBJECT_NOT_FOUND") {
    const revision = Number(metadata["revision"]);
    return { succeeded: condition === undefined, revision, before: [], after: [] };
  }
  if (reason === "REVISION_CONFLICT") {
    return { succeeded: false, modRevision: Number(metadata["mod_revision"]) };
  }
  if (reason === "INVALID_REQUEST") throw new Error("The service refuses a request of the test.");
  return reason === "" || reason === "OUTCOME_UNKNOWN" || reason === "INTERNAL"
    ? "unknown"
    : "refused";
}
