import {
  DiscoveryClient,
  type DiscoveryStream,
  decoded,
  type Received,
} from "../discovery-client.ts";
import { type Asked, ClientView, type ViewedResource } from "./client-view.ts";
import { type FollowedType, idOf, type ResourceId, type StoredHistory } from "./stored-history.ts";
import { messages } from "./stored-mesh.ts";

/** What a client asks for when it begins, by type, in the order of its requests. */
export type Asks = Readonly<
  Partial<Record<FollowedType, { all?: true; names?: readonly string[] }>>
>;

/** The kinds of clients: as Envoy and gRPC are, and what else the protocol allows. */
export const kinds: Readonly<Record<string, { readonly isDelta: boolean; readonly asks: Asks }>> = {
  "all, delta": {
    isDelta: true,
    asks: { cds: { all: true }, eds: { all: true }, lds: { all: true }, rds: { all: true } },
  },
  "names, delta": {
    isDelta: true,
    asks: {
      cds: { names: ["a"] },
      eds: { names: ["a", "b"] },
      lds: { names: ["a"] },
      rds: { names: ["b"] },
    },
  },
  "all and names, delta": {
    isDelta: true,
    asks: {
      cds: { all: true, names: ["a"] },
      eds: { all: true, names: ["b"] },
      rds: { all: true },
    },
  },
  "all, state of the world": {
    isDelta: false,
    asks: {
      cds: { all: true },
      eds: { names: ["a", "b", "c"] },
      lds: { all: true },
      rds: { names: ["a", "b", "c"] },
    },
  },
  "all and names, state of the world": {
    isDelta: false,
    asks: {
      cds: { all: true, names: ["a", "b"] },
      eds: { all: true, names: ["a", "b", "c"] },
      lds: { all: true, names: ["c"] },
      rds: { all: true, names: ["b"] },
    },
  },
  "names, state of the world": {
    isDelta: false,
    asks: {
      lds: { names: ["a"] },
      rds: { names: ["a"] },
      cds: { names: ["b"] },
      eds: { names: ["b"] },
    },
  },
};

/** A client of one server, whose streams are cut and resumed, and what it has received. */
export class MeshClient {
  readonly name: string;
  readonly view: ClientView;
  readonly #port: number;
  readonly #isDelta: boolean;
  readonly #asked = new Map<FollowedType, Asked>();
  /** The versions of what it has received and not refused. */
  readonly #accepted = new Map<ResourceId, string>();
  #mustRefuse = false;
  #stream: DiscoveryStream | undefined;

  constructor(name: string, kind: string, port: number, history: StoredHistory) {
    const { isDelta, asks } = kinds[kind] as (typeof kinds)[string];
    this.name = `${name}: ${kind}`;
    this.view = new ClientView(history, isDelta);
    this.#port = port;
    this.#isDelta = isDelta;
    for (const [type, { all = false, names = [] }] of Object.entries(asks)) {
      this.#asked.set(type as FollowedType, { all, names: new Set(names) });
    }
  }

  /** Begins a stream on a connection of its own, with the versions of what it has. */
  open(): void {
    const client = new DiscoveryClient(this.#port, { ownConnection: true });
    const stream = this.#isDelta ? client.delta() : client.state();
    this.#stream = stream;
    // What a stream that was cut has received is not read any more.
    stream.onReceived = (response) => {
      if (this.#stream === stream) this.#received(response);
    };
    this.view.opened(this.#isDelta ? this.#accepted : new Map());
    for (const [type, asked] of this.#asked) {
      const versions = new Map<string, string>();
      for (const name of this.view.versions(type).keys()) {
        const version = this.#accepted.get(idOf(type, name));
        if (version !== undefined) versions.set(name, version);
      }
      this.view.asks(
        type,
        asked,
        [...asked.names].filter((name) => !versions.has(name)),
      );
      stream.send({ type, names: requestOf(type, asked), versions: Object.fromEntries(versions) });
    }
  }

  /** Ends the stream, and begins another. */
  cut(): void {
    this.#stream?.cancel();
    this.open();
  }

  pause(): void {
    this.#stream?.pause();
  }

  resume(): void {
    this.#stream?.resume();
  }

  /** Refuses the next response. */
  refuseNext(): void {
    this.#mustRefuse = true;
  }

  /** Asks for a name, or no longer. Everything that it has asked for before has to be answered. */
  toggle(type: FollowedType, name: string): void {
    const asked = this.#asked.get(type);
    if (asked === undefined) return;
    const names = new Set(asked.names);
    const isAdded = !names.delete(name);
    if (isAdded) names.add(name);
    // A request without names would ask for all, if it were the first, and for nothing otherwise.
    const mayHaveNone = asked.all && this.#isDelta;
    if (asked.names.size + names.size === 1 && !mayHaveNone) return;
    const now = { all: asked.all, names };
    this.#asked.set(type, now);
    this.view.asks(type, now, isAdded || mayHaveNone ? [name] : []);
    if (!isAdded && !asked.all) this.#accepted.delete(idOf(type, name));
    if (!this.#isDelta) this.#stream?.send({ type, names: requestOf(type, now) });
    else this.#stream?.send({ type, [isAdded ? "names" : "unsubscribe"]: [name] });
  }

  close(): void {
    this.#stream?.cancel();
  }

  #received({ type: of, resources, removed, nonce }: Received): void {
    const type = of as FollowedType;
    const viewed = resources.map(({ bytes, version = "" }) => viewedOf(type, bytes, version));
    this.view.received({ type, resources: viewed, removed });
    const isRefused = this.#mustRefuse;
    this.#mustRefuse = false;
    for (const { name, version } of isRefused ? [] : viewed) {
      this.#accepted.set(idOf(type, name), version);
    }
    for (const name of removed) this.#accepted.delete(idOf(type, name));
    const asked = this.#asked.get(type);
    if (asked === undefined) return;
    const names = this.#isDelta ? [] : requestOf(type, asked);
    this.#stream?.send({ type, nonce, names, ...(isRefused && { refusal: "not this one" }) });
  }
}

/** The names in a request. */
function requestOf(type: FollowedType, { all, names }: Asked): string[] {
  // The first request without names asks for all of these.
  const isImplied = (type === "cds" || type === "lds") && names.size === 0;
  return all && !isImplied ? ["*", ...names] : [...names];
}

interface Decoded {
  readonly name?: string;
  readonly cluster_name?: string;
  readonly endpoints?: readonly { readonly lb_endpoints: readonly { endpoint: Endpoint }[] }[];
  readonly virtual_hosts?: readonly {
    readonly routes: readonly { route: { cluster: string } }[];
  }[];
}

interface Endpoint {
  readonly address: { readonly socket_address: { address: string; port_value: number } };
}

function viewedOf(type: FollowedType, bytes: Buffer, version: string): ViewedResource {
  const message = decoded(messages[type], bytes) as Decoded;
  const { name = message.cluster_name ?? "", virtual_hosts = [], endpoints = [] } = message;
  const clusters = virtual_hosts.flatMap(({ routes }) => routes.map(({ route }) => route.cluster));
  const addresses = endpoints.flatMap(({ lb_endpoints }) =>
    lb_endpoints.map(({ endpoint }) => {
      const { address, port_value } = endpoint.address.socket_address;
      return `${address}:${port_value}`;
    }),
  );
  const content = type === "eds" ? addresses.join() : bytes.toString("latin1");
  return { name, content, version, clusters };
}
