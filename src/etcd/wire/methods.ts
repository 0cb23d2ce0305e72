/**
 * How a method of etcd answers.
 *
 * - `unary`: one response, soon.
 * - `waiting`: one response, which may take as long as another client holds a lock.
 * - `stream`: any number of responses.
 */
export type MethodKind = "unary" | "waiting" | "stream";

/**
 * Where a response has its ResponseHeader, which can be read there without a decoder: in its first field, or at the
 * beginning of the message that its first field is.
 */
export type HeaderPlace = "first" | "nested";

/**
 * Which member a call may go to, if there are several.
 *
 * - `home`: the one that answers what concerns a member, or shows the state that it has.
 * - `any`: whichever member answers has everything that was said before.
 * - `byRequest`: any, unless the request asks for the state that the member has.
 * - `afterRead`: any, once a linearizable read has brought it up to date.
 */
export type MemberChoice = "home" | "any" | "byRequest" | "afterRead";

/** What is known of a method of etcd. */
export interface EtcdMethod {
  readonly kind: MethodKind;
  /** Whether it may change something. */
  readonly mayWrite: boolean;
  /** Whether it may be done again by a client that does not know whether it was done. */
  readonly isRepeatable: boolean;
  /** Where its responses contain a ResponseHeader. Undefined: nowhere, or it is not known. */
  readonly header: HeaderPlace | undefined;
  readonly member: MemberChoice;
  /** Its path in etcd's JSON gateway, below `/v3/`. Absent: it is not served there. */
  readonly gatewayPath?: string;
}

/** The packages of etcd's API. Their methods are relayed, also those that are newer than this table. */
const packages = ["etcdserverpb", "v3lockpb", "v3electionpb"];

const pathPattern = new RegExp(String.raw`^/(?:${packages.join("|")})\.\w{1,64}/\w{1,64}$`);

const read: EtcdMethod = {
  kind: "unary",
  mayWrite: false,
  isRepeatable: true,
  header: "first",
  member: "home",
};
const write: EtcdMethod = { ...read, mayWrite: true, isRepeatable: false };
const stream: EtcdMethod = { ...read, kind: "stream" };
// These go through the log of the cluster, or begin with a linearizable read.
const spreadRead: EtcdMethod = { ...read, member: "any" };
const spreadWrite: EtcdMethod = { ...write, member: "any" };
const waiting: EtcdMethod = { ...spreadWrite, kind: "waiting" };

/** The same, at this path of the JSON gateway. */
function at(gatewayPath: string, method: EtcdMethod): EtcdMethod {
  return { ...method, gatewayPath };
}

/** A method that is newer than this table may do anything. */
const unknown: EtcdMethod = { ...write, kind: "stream", header: undefined };

/** The methods of etcd 3.7 and older, by service. Facts of etcd's rpc.proto, v3lock.proto and v3election.proto. */
const services: Readonly<Record<string, Readonly<Record<string, EtcdMethod>>>> = {
  "etcdserverpb.KV": {
    Range: at("kv/range", { ...read, member: "byRequest" }),
    RangeStream: { ...stream, header: "nested", member: "byRequest" },
    Put: at("kv/put", spreadWrite),
    DeleteRange: at("kv/deleterange", spreadWrite),
    Txn: at("kv/txn", { ...write, member: "byRequest" }),
    Compact: at("kv/compaction", write),
  },
  "etcdserverpb.Watch": { Watch: at("watch", stream) },
  "etcdserverpb.Lease": {
    LeaseGrant: at("lease/grant", spreadWrite),
    LeaseRevoke: at("lease/revoke", spreadWrite),
    // The leader answers these two, whichever member is asked.
    LeaseKeepAlive: at("lease/keepalive", { ...stream, mayWrite: true, member: "any" }),
    LeaseTimeToLive: at("lease/timetolive", spreadRead),
    LeaseLeases: at("lease/leases", { ...read, member: "afterRead" }),
  },
  "etcdserverpb.Cluster": {
    MemberAdd: at("cluster/member/add", write),
    MemberRemove: at("cluster/member/remove", write),
    MemberUpdate: at("cluster/member/update", write),
    MemberList: at("cluster/member/list", read),
    MemberPromote: at("cluster/member/promote", write),
  },
  "etcdserverpb.Maintenance": {
    Alarm: at("maintenance/alarm", write),
    Status: at("maintenance/status", read),
    Defragment: at("maintenance/defragment", write),
    Hash: at("maintenance/hash", read),
    HashKV: at("maintenance/hashkv", read),
    Snapshot: at("maintenance/snapshot", stream),
    MoveLeader: at("maintenance/transfer-leadership", write),
    Downgrade: at("maintenance/downgrade", write),
  },
  "etcdserverpb.Auth": {
    AuthEnable: at("auth/enable", write),
    AuthDisable: at("auth/disable", write),
    AuthStatus: at("auth/status", read),
    Authenticate: at("auth/authenticate", write),
    UserAdd: at("auth/user/add", write),
    UserGet: at("auth/user/get", read),
    UserList: at("auth/user/list", read),
    UserDelete: at("auth/user/delete", write),
    UserChangePassword: at("auth/user/changepw", write),
    UserGrantRole: at("auth/user/grant", write),
    UserRevokeRole: at("auth/user/revoke", write),
    RoleAdd: at("auth/role/add", write),
    RoleGet: at("auth/role/get", read),
    RoleList: at("auth/role/list", read),
    RoleDelete: at("auth/role/delete", write),
    RoleGrantPermission: at("auth/role/grant", write),
    RoleRevokePermission: at("auth/role/revoke", write),
  },
  "v3lockpb.Lock": { Lock: at("lock/lock", waiting), Unlock: at("lock/unlock", spreadWrite) },
  "v3electionpb.Election": {
    Campaign: at("election/campaign", waiting),
    Proclaim: at("election/proclaim", spreadWrite),
    Leader: at("election/leader", spreadRead),
    Observe: at("election/observe", { ...stream, member: "any" }),
    Resign: at("election/resign", spreadWrite),
  },
};

/** All methods that are known, by their paths. */
export const etcdMethods: ReadonlyMap<string, EtcdMethod> = new Map(
  Object.entries(services).flatMap(([service, all]) =>
    Object.entries(all).map(([name, method]) => [`/${service}/${name}`, method] as const),
  ),
);

/** What is known of the method at a path, `/package.Service/Method`; undefined: it is not of etcd's packages. */
export function etcdMethodAt(path: string): EtcdMethod | undefined {
  return etcdMethods.get(path) ?? (pathPattern.test(path) ? unknown : undefined);
}
