import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { HttpMethod, RawMethod } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import { JsonCall } from "./json-call.ts";
import { messageOf, type Route, routes } from "./schema.ts";

/**
 * The target of a request to the gateway: a path, before which clients of a proxy put its origin, and behind it a query, which
 * has no meaning. The paths of etcd 3.3 are served by etcd 3.5, too.
 */
const targetPattern = /^(?:https?:\/\/[^/?]*)?\/v3(?:beta)?\/([^?]*)/;

/**
 * Browsers say with each POST which page it is of. Any page may send one to any address without asking first, and so write to
 * a store that trusts its network.
 */
const ofPage = refused(
  status.PERMISSION_DENIED,
  "requests of web pages are not accepted: they have the header Origin",
);

/** A request that no method takes. */
const noRoute: Route = {
  path: "",
  request: messageOf(""),
  response: messageOf(""),
  hasRequests: false,
  hasResponses: false,
};

/**
 * etcd's JSON gateway: each of its paths is a method of etcd's API, with protobuf's JSON for its messages. A call is handed to
 * the method that serves it by gRPC.
 */
export class Gateway {
  readonly #methods: ReadonlyMap<string, HttpMethod>;
  readonly #notFound = refusing(status.NOT_FOUND, "Not Found");
  readonly #notAllowed = refusing(status.UNIMPLEMENTED, "Method Not Allowed");

  /** `methodAt`: the method at a path of gRPC. */
  constructor(methodAt: (path: string) => RawMethod | undefined) {
    const methods = new Map<string, HttpMethod>();
    for (const route of routes()) {
      const method = methodAt(route.path);
      if (method === undefined) continue;
      methods.set(route.gatewayPath, methodOf(route, method));
      // etcd has these at two paths.
      if (/^lease\/(?:revoke|timetolive|leases)$/.test(route.gatewayPath))
        methods.set(`kv/${route.gatewayPath}`, methodOf(route, method));
    }
    this.#methods = methods;
  }

  /** The method at the target of a request; undefined: it is not one of the gateway. */
  methodAt(target: string, verb: string): HttpMethod | undefined {
    const below = targetPattern.exec(target)?.[1];
    if (below === undefined) return undefined;
    const method = this.#methods.get(below);
    if (method === undefined) return this.#notFound;
    return verb === "POST" ? method : this.#notAllowed;
  }
}

function methodOf(route: Route, method: RawMethod): HttpMethod {
  return {
    ...method,
    translate: (call, context) => new JsonCall(call, route, context),
    serve: (call, headers, context) => {
      if (headers["origin"] !== undefined) call.end(ofPage);
      else method.serve(call, metadataOf(headers), context);
    },
  };
}

/** What refuses requests for which there is no method. */
function refusing(code: status, details: string): HttpMethod {
  return {
    ...{ name: "etcdserverpb/unknown", label: "etcdserverpb/unknown", sheds: "call" },
    ...{ isStreaming: false, mayWrite: false, isRepeatable: true },
    translate: (call, context) => new JsonCall(call, noRoute, context),
    serve: (call) => call.end(refused(code, details)),
  };
}

/** Headers that are metadata of the same name, and the beginning of others that are. */
const passed = ["authorization", "grpc-timeout"];
const forwardedPrefix = "grpc-metadata-";

/** The metadata of the call of gRPC, as etcd's gateway makes it of the headers of a request. */
function metadataOf(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const metadata: IncomingHttpHeaders = {};
  for (const [name, value] of Object.entries(headers)) {
    const isPrefixed = name.startsWith(forwardedPrefix);
    const key = isPrefixed ? name.slice(forwardedPrefix.length) : name;
    const isPassed = isPrefixed ? !/^(?:$|grpc-|x-forwarded-)/.test(key) : passed.includes(name);
    if (isPassed) Object.assign(metadata, { [key]: value });
  }
  metadata["content-type"] = "application/grpc";
  return metadata;
}
