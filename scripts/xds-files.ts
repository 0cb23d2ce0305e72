import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** The folders of the package that has the protos of xDS. */
const folders = ["envoy-api", "xds", "googleapis", "protoc-gen-validate"];

/** What a value in JSON may consist of, beside the types themselves: extensions, by their folders in `envoy/extensions`. */
const extensions = [
  "access_loggers/file/v3/file",
  "access_loggers/stream/v3/stream",
  "clusters/aggregate/v3/cluster",
  "clusters/dynamic_forward_proxy/v3/cluster",
  "filters/http/buffer/v3/buffer",
  "filters/http/compressor/v3/compressor",
  "filters/http/cors/v3/cors",
  "filters/http/dynamic_forward_proxy/v3/dynamic_forward_proxy",
  "filters/http/ext_authz/v3/ext_authz",
  "filters/http/fault/v3/fault",
  "filters/http/grpc_web/v3/grpc_web",
  "filters/http/header_mutation/v3/header_mutation",
  "filters/http/health_check/v3/health_check",
  "filters/http/jwt_authn/v3/config",
  "filters/http/local_ratelimit/v3/local_rate_limit",
  "filters/http/lua/v3/lua",
  "filters/http/ratelimit/v3/rate_limit",
  "filters/http/rbac/v3/rbac",
  "filters/http/router/v3/router",
  "filters/http/stateful_session/v3/stateful_session",
  "filters/listener/http_inspector/v3/http_inspector",
  "filters/listener/original_dst/v3/original_dst",
  "filters/listener/proxy_protocol/v3/proxy_protocol",
  "filters/listener/tls_inspector/v3/tls_inspector",
  "filters/network/http_connection_manager/v3/http_connection_manager",
  "filters/network/rbac/v3/rbac",
  "filters/network/tcp_proxy/v3/tcp_proxy",
  "load_balancing_policies/client_side_weighted_round_robin/v3/client_side_weighted_round_robin",
  "load_balancing_policies/least_request/v3/least_request",
  "load_balancing_policies/maglev/v3/maglev",
  "load_balancing_policies/pick_first/v3/pick_first",
  "load_balancing_policies/random/v3/random",
  "load_balancing_policies/ring_hash/v3/ring_hash",
  "load_balancing_policies/round_robin/v3/round_robin",
  "load_balancing_policies/wrr_locality/v3/wrr_locality",
  "retry/host/omit_canary_hosts/v3/omit_canary_hosts",
  "retry/host/previous_hosts/v3/previous_hosts",
  "transport_sockets/raw_buffer/v3/raw_buffer",
  "transport_sockets/tls/v3/tls",
  "upstreams/http/v3/http_protocol_options",
];

const roots = [
  "envoy/config/cluster/v3/cluster.proto",
  "envoy/config/endpoint/v3/endpoint.proto",
  "envoy/config/listener/v3/listener.proto",
  "envoy/config/route/v3/route.proto",
  "udpa/type/v1/typed_struct.proto",
  "xds/type/v3/typed_struct.proto",
  ...extensions.map((name) => `envoy/extensions/${name}.proto`),
];

/** The protos that values of xDS need, with all that they import, by name. Throws if one of them is missing. */
export function xdsFiles(): ReadonlyMap<string, string> {
  const require = createRequire(import.meta.url);
  const deps = join(dirname(require.resolve("@grpc/grpc-js-xds/package.json")), "deps");
  const files = new Map<string, string>();
  const waiting = [...roots];
  for (let name = waiting.pop(); name !== undefined; name = waiting.pop()) {
    if (files.has(name) || name.startsWith("google/protobuf/")) continue;
    const content = contentOf(deps, name);
    files.set(name, content);
    for (const [, imported = ""] of content.matchAll(/^import (?:public )?"([^"]+)"/gm)) {
      waiting.push(imported);
    }
  }
  return files;
}

function contentOf(deps: string, name: string): string {
  const path = folders.map((folder) => join(deps, folder, name)).find((file) => existsSync(file));
  if (path === undefined) throw new Error(`@grpc/grpc-js-xds has no proto ${name}.`);
  const content = readFileSync(path, "utf8");
  // The package has a version of it without this option, which its other protos use. Options are not used here.
  if (name !== "validate/validate.proto" || content.includes("ignore_empty")) return content;
  return content.replace(
    "message StringRules {",
    "message StringRules {\n  optional bool ignore_empty = 26;",
  );
}
