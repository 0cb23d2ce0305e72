import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { waitFor } from "../../base/wait.ts";
import { frameOf } from "../../wire/encode.ts";
import { decodedDetails } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { nextMessage, UnreadableMessage } from "../wire/messages.ts";
import type { Upstream } from "./upstream.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";

/** How long etcd may take to answer, in milliseconds. */
const answerMs = 3_000;

/** Default maximum size of an answer, in bytes. */
const defaultMaxBytes = 4 * 1024 ** 2;

/** What etcd has answered. UNAVAILABLE if it has not. */
export interface UpstreamAnswer {
  readonly code: status;
  /** The text of the status. */
  readonly details: string;
  /** Undefined: the code is not OK. */
  readonly message: Buffer | undefined;
  /** Where the answer comes from. Absent: etcd can't be reached, or is late. */
  readonly source?: UpstreamConnection;
  /** Whether it was larger than allowed. Absent: it was not. */
  readonly isTooLarge?: boolean;
}

const notAnswered: UpstreamAnswer = {
  code: status.UNAVAILABLE,
  details: "etcd has not answered",
  message: undefined,
};

const tooLarge: UpstreamAnswer = { ...notAnswered, isTooLarge: true };

/** What a question needs of the members that calls go to. */
export type Askable = Pick<Upstream, "whenAvailable"> & Partial<Pick<Upstream, "namespace">>;

/**
 * Makes a call of etcd with one request and one response, with the metadata of a client, to find out something before the
 * client's own call is handled, or in its place. `request`: without gRPC's prefix, of keys in the namespace of the upstream.
 * The answer has keys of etcd. `maxBytes`: of the answer; etcd does not send more than its stream's window of a larger one.
 * Never rejects.
 */
export function askUpstream(
  upstream: Askable,
  headers: OutgoingHttpHeaders,
  request: Uint8Array,
  clock: Clock,
  maxBytes: number = defaultMaxBytes,
): Promise<UpstreamAnswer> {
  const translation = upstream.namespace?.translationOf(String(headers[":path"]));
  const sent = translation?.request?.(Buffer.from(request)) ?? request;
  return waitFor<UpstreamAnswer>(
    (resolve) => {
      let stream: ClientHttp2Stream | undefined;
      let isOver = false;
      upstream.whenAvailable({
        isOver: () => isOver,
        open: (connection) => {
          stream = connection.request(headers);
          receive(stream, maxBytes, (answer) => resolve({ ...answer, source: connection }));
          stream.end(Buffer.concat(frameOf(sent)));
        },
        fail: () => resolve(notAnswered),
      });
      return () => {
        isOver = true;
        if (stream?.closed === false) stream.close(constants.NGHTTP2_CANCEL);
      };
    },
    { deadline: { clock, ms: answerMs, expire: () => notAnswered } },
  );
}

function receive(
  stream: ClientHttp2Stream,
  maxBytes: number,
  resolve: (answer: UpstreamAnswer) => void,
): void {
  const messages = new MessageReader();
  let trailers: IncomingHttpHeaders | undefined;
  stream.on("response", (headers: IncomingHttpHeaders) => {
    if (headers["grpc-status"] !== undefined) trailers = headers;
  });
  stream.on("trailers", (received: IncomingHttpHeaders) => {
    trailers = received;
  });
  stream.on("data", (chunk: Buffer) => {
    messages.add(chunk);
    if (messages.received > maxBytes || messages.size > maxBytes) resolve(tooLarge);
  });
  stream.on("close", () => resolve(answerOf(messages, maxBytes, trailers)));
}

function answerOf(
  messages: MessageReader,
  maxBytes: number,
  trailers: IncomingHttpHeaders | undefined,
): UpstreamAnswer {
  const code = Number(trailers?.["grpc-status"] ?? Number.NaN);
  if (Number.isNaN(code)) return notAnswered;
  if (code !== status.OK) {
    const details = decodedDetails(String(trailers?.["grpc-message"] ?? ""));
    return { code, details, message: undefined };
  }
  try {
    const message = nextMessage(messages, maxBytes);
    return message === undefined ? notAnswered : { code, details: "", message };
  } catch (error) {
    if (!(error instanceof UnreadableMessage)) throw error;
    return notAnswered;
  }
}
