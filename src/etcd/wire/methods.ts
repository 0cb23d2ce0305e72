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

/** A method that is newer than this table may do anything. */
const unknown: EtcdMethod = { ...write, kind: "stream", header: undefined };

/** The methods of etcd 3.7 and older, by service. Facts of etcd's rpc.proto, v3lock.proto and v3election.proto. */
const services: Readonly<Record<string, Readonly<Record<string, EtcdMethod>>>> = {
  "etcdserverpb.KV": {
    Range: { ...read, member: "byRequest" },
    RangeStream: { ...stream, header: "nested", member: "byRequest" },
    Put: spreadWrite,
    DeleteRange: spreadWrite,
    Txn: { ...write, member: "byRequest" },
    Compact: write,
  },
  "etcdserverpb.Watch": { Watch: stream },
  "etcdserverpb.Lease": {
    LeaseGrant: spreadWrite,
    LeaseRevoke: spreadWrite,
    // The leader answers these two, whichever member is asked.
    LeaseKeepAlive: { ...stream, mayWrite: true, member: "any" },
    LeaseTimeToLive: spreadRead,
    LeaseLeases: { ...read, member: "afterRead" },
  },
  "etcdserverpb.Cluster": {
    MemberAdd: write,
    MemberRemove: write,
    MemberUpdate: write,
    MemberList: read,
    MemberPromote: write,
  },
  "etcdserverpb.Maintenance": {
    Alarm: write,
    Status: read,
    Defragment: write,
    Hash: read,
    HashKV: read,
    Snapshot: stream,
    MoveLeader: write,
    Downgrade: write,
  },
  "etcdserverpb.Auth": {
    AuthEnable: write,
    AuthDisable: write,
    AuthStatus: read,
    Authenticate: write,
    UserAdd: write,
    UserGet: read,
    UserList: read,
    UserDelete: write,
    UserChangePassword: write,
    UserGrantRole: write,
    UserRevokeRole: write,
    RoleAdd: write,
    RoleGet: read,
    RoleList: read,
    RoleDelete: write,
    RoleGrantPermission: write,
    RoleRevokePermission: write,
  },
  "v3lockpb.Lock": { Lock: waiting, Unlock: spreadWrite },
  "v3electionpb.Election": {
    Campaign: waiting,
    Proclaim: spreadWrite,
    Leader: spreadRead,
    Observe: { ...stream, member: "any" },
    Resign: spreadWrite,
  },
};

const methods: ReadonlyMap<string, EtcdMethod> = new Map(
  Object.entries(services).flatMap(([service, all]) =>
    Object.entries(all).map(([name, method]) => [`/${service}/${name}`, method] as const),
  ),
);

/** The paths of all methods that are known. */
export const etcdMethodPaths: readonly string[] = [...methods.keys()];

/** What is known of the method at a path, `/package.Service/Method`; undefined: it is not of etcd's packages. */
export function etcdMethodAt(path: string): EtcdMethod | undefined {
  return methods.get(path) ?? (pathPattern.test(path) ? unknown : undefined);
}
