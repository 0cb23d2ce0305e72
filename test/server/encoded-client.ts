import type { IncomingHttpHeaders } from "node:http2";
import type { MethodDefinition } from "@grpc/proto-loader";
import { decompressed } from "../foreign/decompressed.ts";
import { framed, type RawCall, RawConnection } from "./http2/raw-connection.ts";

/** A message as it was sent. */
export interface Sent<Out> {
  readonly message: Out;
  readonly isCompressed: boolean;
  /** Without gRPC's prefix. */
  readonly sentBytes: number;
  readonly plainBytes: number;
}

/** A client of HTTP/2 that accepts some encodings, and says what was compressed. */
export class EncodedClient {
  readonly #raw: RawConnection;
  readonly #accepted: string | undefined;

  /** `accepted`: the value of grpc-accept-encoding; undefined: the header is absent. */
  constructor(port: number, accepted: string | undefined) {
    this.#raw = new RawConnection(port, 1024 ** 2);
    this.#accepted = accepted;
  }

  open<In, Out>(
    method: MethodDefinition<In, object, object, Out>,
    ...requests: readonly In[]
  ): EncodedCall<In, Out> {
    const { path, requestSerialize, responseDeserialize, requestStream } = method;
    const headers: Record<string, string> =
      this.#accepted === undefined ? {} : { "grpc-accept-encoding": this.#accepted };
    const call = this.#raw.open(path, headers);
    const encoded = new EncodedCall<In, Out>(call, requestSerialize, responseDeserialize);
    for (const request of requests) encoded.send(request);
    if (!requestStream) call.stream.end();
    return encoded;
  }

  /** The only response of a call. */
  unary<In, Out>(
    method: MethodDefinition<In, object, object, Out>,
    request: In,
  ): Promise<Sent<Out>> {
    return this.open(method, request).next();
  }

  close(): void {
    this.#raw.session.destroy();
  }
}

/** A call whose responses are read when they are asked for. */
export class EncodedCall<In, Out> {
  readonly #call: RawCall;
  readonly #serialize: (request: In) => Buffer;
  readonly #deserialize: (message: Buffer) => Out;
  readonly #frames: AsyncGenerator<Buffer, void, void>;

  constructor(
    call: RawCall,
    serialize: (request: In) => Buffer,
    deserialize: (message: Buffer) => Out,
  ) {
    this.#call = call;
    this.#serialize = serialize;
    this.#deserialize = deserialize;
    this.#frames = framesOf(call);
  }

  get headers(): Promise<IncomingHttpHeaders> {
    return this.#call.answered;
  }

  send(request: In): void {
    this.#call.stream.write(framed(this.#serialize(request)));
  }

  cancel(): void {
    this.#call.cancel();
  }

  /** The next message. Rejects if the call ends instead. */
  async next(): Promise<Sent<Out>> {
    const { value: frame } = await this.#frames.next();
    if (frame === undefined) throw new Error("The stream has ended.");
    const isCompressed = frame[0] === 1;
    const bytes = frame.subarray(5);
    const { "grpc-encoding": encoding } = await this.headers;
    const plain = isCompressed ? decompressed(String(encoding), bytes) : bytes;
    return {
      message: this.#deserialize(plain),
      ...{ isCompressed, sentBytes: bytes.length, plainBytes: plain.length },
    };
  }

  /** Reads until `isLast` returns true, and returns all messages. */
  async until(isLast: (message: Out) => boolean): Promise<Sent<Out>[]> {
    const all: Sent<Out>[] = [];
    for (;;) {
      const sent = await this.next();
      all.push(sent);
      if (isLast(sent.message)) return all;
    }
  }
}

async function* framesOf(call: RawCall): AsyncGenerator<Buffer, void, void> {
  let rest = Buffer.alloc(0);
  for await (const chunk of call.stream.iterator({ destroyOnReturn: false })) {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      const end = 5 + rest.readUInt32BE(1);
      yield rest.subarray(0, end);
      rest = rest.subarray(end);
    }
  }
}
