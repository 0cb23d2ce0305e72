/** The status codes of gRPC, without a library of it, which browsers lack. */
export const codes = {
  OK: 0,
  CANCELLED: 1,
  UNKNOWN: 2,
  INVALID_ARGUMENT: 3,
  DEADLINE_EXCEEDED: 4,
  NOT_FOUND: 5,
  ALREADY_EXISTS: 6,
  PERMISSION_DENIED: 7,
  RESOURCE_EXHAUSTED: 8,
  FAILED_PRECONDITION: 9,
  ABORTED: 10,
  OUT_OF_RANGE: 11,
  UNIMPLEMENTED: 12,
  INTERNAL: 13,
  UNAVAILABLE: 14,
  DATA_LOSS: 15,
  UNAUTHENTICATED: 16,
} as const;

const names = Object.keys(codes);

/** The name of a code; its number if gRPC does not define it. */
export function codeName(code: number): string {
  return names[code] ?? String(code);
}

/** The states of a connection, as gRPC numbers them. */
export const connectivity = {
  IDLE: 0,
  CONNECTING: 1,
  READY: 2,
  TRANSIENT_FAILURE: 3,
  SHUTDOWN: 4,
} as const;

/** The state of the connection to one server, as a channel of grpc-js has it. */
export interface Channel {
  /** `tryToConnect`: whether it connects if it is idle. */
  getConnectivityState(tryToConnect: boolean): number;
  /** Calls `callback` once, when the state is another one than `state`, or after the deadline with an error. */
  watchConnectivityState(
    state: number,
    deadline: Date | number,
    callback: (late?: Error) => void,
  ): void;
}
