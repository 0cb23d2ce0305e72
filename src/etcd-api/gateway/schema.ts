import { etcdMethods } from "../../etcd/wire/methods.ts";
import { camelCase, type Field, type Message, scalars } from "../../wire/json/message-type.ts";

const enums: Readonly<Record<string, readonly string[]>> = {
  SortOrder: ["NONE", "ASCEND", "DESCEND"],
  SortTarget: ["KEY", "VERSION", "CREATE", "MOD", "VALUE"],
  CompareResult: ["EQUAL", "GREATER", "LESS", "NOT_EQUAL"],
  CompareTarget: ["VERSION", "CREATE", "MOD", "VALUE", "LEASE"],
  FilterType: ["NOPUT", "NODELETE"],
  EventType: ["PUT", "DELETE"],
  AlarmAction: ["GET", "ACTIVATE", "DEACTIVATE"],
  AlarmType: ["NONE", "NOSPACE", "CORRUPT"],
  DowngradeAction: ["VALIDATE", "ENABLE", "CANCEL"],
  PermissionType: ["READ", "WRITE", "READWRITE"],
};

/**
 * Facts of the protos of etcd 3.6: the number, name and type of each field, in the order of their numbers. A message that is
 * not named has no fields, or if its name ends with "Response" the header alone.
 */
const messages: Readonly<Record<string, string>> = {
  RangeRequest:
    "1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 5 sort_order SortOrder, 6 sort_target SortTarget, 7 serializable bool, 8 keys_only bool, 9 count_only bool, 10 min_mod_revision int64, 11 max_mod_revision int64, 12 min_create_revision int64, 13 max_create_revision int64",
  RangeResponse: "1 header ResponseHeader, 2 kvs KeyValue[], 3 more bool, 4 count int64",
  ResponseHeader: "1 cluster_id uint64, 2 member_id uint64, 3 revision int64, 4 raft_term uint64",
  KeyValue:
    "1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes, 6 lease int64",
  PutRequest:
    "1 key bytes, 2 value bytes, 3 lease int64, 4 prev_kv bool, 5 ignore_value bool, 6 ignore_lease bool",
  PutResponse: "1 header ResponseHeader, 2 prev_kv KeyValue",
  DeleteRangeRequest: "1 key bytes, 2 range_end bytes, 3 prev_kv bool",
  DeleteRangeResponse: "1 header ResponseHeader, 2 deleted int64, 3 prev_kvs KeyValue[]",
  TxnRequest: "1 compare Compare[], 2 success RequestOp[], 3 failure RequestOp[]",
  Compare:
    "1 result CompareResult, 2 target CompareTarget, 3 key bytes, 4 version int64 target_union, 5 create_revision int64 target_union, 6 mod_revision int64 target_union, 7 value bytes target_union, 8 lease int64 target_union, 64 range_end bytes",
  RequestOp:
    "1 request_range RangeRequest request, 2 request_put PutRequest request, 3 request_delete_range DeleteRangeRequest request, 4 request_txn TxnRequest request",
  TxnResponse: "1 header ResponseHeader, 2 succeeded bool, 3 responses ResponseOp[]",
  ResponseOp:
    "1 response_range RangeResponse response, 2 response_put PutResponse response, 3 response_delete_range DeleteRangeResponse response, 4 response_txn TxnResponse response",
  CompactionRequest: "1 revision int64, 2 physical bool",
  WatchRequest:
    "1 create_request WatchCreateRequest request_union, 2 cancel_request WatchCancelRequest request_union, 3 progress_request WatchProgressRequest request_union",
  WatchCreateRequest:
    "1 key bytes, 2 range_end bytes, 3 start_revision int64, 4 progress_notify bool, 5 filters FilterType[], 6 prev_kv bool, 7 watch_id int64, 8 fragment bool",
  WatchCancelRequest: "1 watch_id int64",
  WatchResponse:
    "1 header ResponseHeader, 2 watch_id int64, 3 created bool, 4 canceled bool, 5 compact_revision int64, 6 cancel_reason string, 7 fragment bool, 11 events Event[]",
  Event: "1 type EventType, 2 kv KeyValue, 3 prev_kv KeyValue",
  LeaseGrantRequest: "1 TTL int64, 2 ID int64",
  LeaseGrantResponse: "1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 error string",
  LeaseRevokeRequest: "1 ID int64",
  LeaseKeepAliveRequest: "1 ID int64",
  LeaseKeepAliveResponse: "1 header ResponseHeader, 2 ID int64, 3 TTL int64",
  LeaseTimeToLiveRequest: "1 ID int64, 2 keys bool",
  LeaseTimeToLiveResponse:
    "1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 grantedTTL int64, 5 keys bytes[]",
  LeaseLeasesResponse: "1 header ResponseHeader, 2 leases LeaseStatus[]",
  LeaseStatus: "1 ID int64",
  MemberAddRequest: "1 peerURLs string[], 2 isLearner bool",
  MemberAddResponse: "1 header ResponseHeader, 2 member Member, 3 members Member[]",
  Member:
    "1 ID uint64, 2 name string, 3 peerURLs string[], 4 clientURLs string[], 5 isLearner bool",
  MemberRemoveRequest: "1 ID uint64",
  MemberRemoveResponse: "1 header ResponseHeader, 2 members Member[]",
  MemberUpdateRequest: "1 ID uint64, 2 peerURLs string[]",
  MemberUpdateResponse: "1 header ResponseHeader, 2 members Member[]",
  MemberListRequest: "1 linearizable bool",
  MemberListResponse: "1 header ResponseHeader, 2 members Member[]",
  MemberPromoteRequest: "1 ID uint64",
  MemberPromoteResponse: "1 header ResponseHeader, 2 members Member[]",
  AlarmRequest: "1 action AlarmAction, 2 memberID uint64, 3 alarm AlarmType",
  AlarmResponse: "1 header ResponseHeader, 2 alarms AlarmMember[]",
  AlarmMember: "1 memberID uint64, 2 alarm AlarmType",
  StatusResponse:
    "1 header ResponseHeader, 2 version string, 3 dbSize int64, 4 leader uint64, 5 raftIndex uint64, 6 raftTerm uint64, 7 raftAppliedIndex uint64, 8 errors string[], 9 dbSizeInUse int64, 10 isLearner bool, 11 storageVersion string, 12 dbSizeQuota int64, 13 downgradeInfo DowngradeInfo",
  DowngradeInfo: "1 enabled bool, 2 targetVersion string",
  HashResponse: "1 header ResponseHeader, 2 hash uint32",
  HashKVRequest: "1 revision int64",
  HashKVResponse:
    "1 header ResponseHeader, 2 hash uint32, 3 compact_revision int64, 4 hash_revision int64",
  SnapshotResponse:
    "1 header ResponseHeader, 2 remaining_bytes uint64, 3 blob bytes, 4 version string",
  MoveLeaderRequest: "1 targetID uint64",
  DowngradeRequest: "1 action DowngradeAction, 2 version string",
  DowngradeResponse: "1 header ResponseHeader, 2 version string",
  AuthStatusResponse: "1 header ResponseHeader, 2 enabled bool, 3 authRevision uint64",
  AuthenticateRequest: "1 name string, 2 password string",
  AuthenticateResponse: "1 header ResponseHeader, 2 token string",
  AuthUserAddRequest:
    "1 name string, 2 password string, 3 options UserAddOptions, 4 hashedPassword string",
  UserAddOptions: "1 no_password bool",
  AuthUserGetRequest: "1 name string",
  AuthUserGetResponse: "1 header ResponseHeader, 2 roles string[]",
  AuthUserListResponse: "1 header ResponseHeader, 2 users string[]",
  AuthUserDeleteRequest: "1 name string",
  AuthUserChangePasswordRequest: "1 name string, 2 password string, 3 hashedPassword string",
  AuthUserGrantRoleRequest: "1 user string, 2 role string",
  AuthUserRevokeRoleRequest: "1 name string, 2 role string",
  AuthRoleAddRequest: "1 name string",
  AuthRoleGetRequest: "1 role string",
  AuthRoleGetResponse: "1 header ResponseHeader, 2 perm Permission[]",
  Permission: "1 permType PermissionType, 2 key bytes, 3 range_end bytes",
  AuthRoleListResponse: "1 header ResponseHeader, 2 roles string[]",
  AuthRoleDeleteRequest: "1 role string",
  AuthRoleGrantPermissionRequest: "1 name string, 2 perm Permission",
  AuthRoleRevokePermissionRequest: "1 role string, 2 key bytes, 3 range_end bytes",
  LockRequest: "1 name bytes, 2 lease int64",
  LockResponse: "1 header ResponseHeader, 2 key bytes",
  UnlockRequest: "1 key bytes",
  CampaignRequest: "1 name bytes, 2 lease int64, 3 value bytes",
  CampaignResponse: "1 header ResponseHeader, 2 leader LeaderKey",
  LeaderKey: "1 name bytes, 2 key bytes, 3 rev int64, 4 lease int64",
  ProclaimRequest: "1 leader LeaderKey, 2 value bytes",
  LeaderRequest: "1 name bytes",
  LeaderResponse: "1 header ResponseHeader, 2 kv KeyValue",
  ResignRequest: "1 leader LeaderKey",
};

const knownMessages = new Map<string, Message>();

/** The message of this name, with the messages of its fields. Messages may contain themselves, as TxnRequest does. */
export function messageOf(name: string): Message {
  const found = knownMessages.get(name);
  if (found !== undefined) return found;
  const byNumber = new Map<number, Field>();
  const byName = new Map<string, Field>();
  const message = { package: "etcdserverpb", name, byNumber, byName, isStrict: false };
  knownMessages.set(name, message);
  const fields = messages[name] ?? (name.endsWith("Response") ? "1 header ResponseHeader" : "");
  for (const text of fields === "" ? [] : fields.split(", ")) {
    const field = fieldOf(text);
    byNumber.set(field.number, field);
    byName.set(field.name, field);
    byName.set(camelCase(field.name), field);
  }
  return message;
}

function fieldOf(text: string): Field {
  const [number = "", name = "", typeName = "", oneof] = text.split(" ");
  const single = typeName.replace("[]", "");
  const scalar = scalars.find((known) => known === single);
  const type = scalar ?? enums[single] ?? messageOf(single);
  return { number: Number(number), name, type, isRepeated: single !== typeName, oneof };
}

/** A method of etcd at a path of its JSON gateway. */
export interface Route {
  /** Its gRPC path. */
  readonly path: string;
  readonly request: Message;
  readonly response: Message;
  /** Whether it has a stream of requests; of responses. */
  readonly hasRequests: boolean;
  readonly hasResponses: boolean;
}

/** The methods with a stream of requests, and those whose messages are not named as they are. */
const withRequests = ["Watch", "LeaseKeepAlive"];
const messageNames: Readonly<Record<string, string>> = { Compact: "Compaction", Observe: "Leader" };

/** The methods of the gateway. */
export function* routes(): Generator<Route & { readonly gatewayPath: string }, void, void> {
  for (const [path, { kind, gatewayPath }] of etcdMethods) {
    if (gatewayPath === undefined) continue;
    const name = path.slice(path.lastIndexOf("/") + 1);
    const named = messageNames[name] ?? name.replace(/^(?=User|Role)/, "Auth");
    yield {
      ...{ path, gatewayPath },
      request: messageOf(`${named}Request`),
      response: messageOf(`${named}Response`),
      hasRequests: withRequests.includes(name),
      hasResponses: kind === "stream",
    };
  }
}
