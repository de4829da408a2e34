// The programs of eBPF mode. They decide as `forward` does in user mode, and count under the same names.
//
//   access    (XDP, access interface)   PPPoE off a session's packets: the system routes them as plain IP
//   lower     (tc ingress, there)       lowers what a SYN of a host announces
//   access_tc (tc ingress, there)       both of these, where XDP is slower
//   lower_only, access_tc_only          the same for kernels whose filters at a queueing discipline have their turn by priority
//   host      (tc egress, TUN device)   PPPoE on, and away by the access interface
//   cut       (tc ingress, far end of a veth pair): packets that the kernel has joined go through that pair, whose near end has
//                                       them cut, since the kernel cannot cut behind PPPoE's header
//
// The layout of what stands in maps is that of `layout.rs`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// Helpers by their numbers (enum bpf_func_id of linux/bpf.h).
static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*xdp_adjust_head)(struct xdp_md *, int) = (void *)BPF_FUNC_xdp_adjust_head;
static __u64 (*xdp_length)(struct xdp_md *) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*skb_load)(const struct __sk_buff *, __u32, void *, __u32) = (void *)BPF_FUNC_skb_load_bytes;
static long (*skb_store)(struct __sk_buff *, __u32, const void *, __u32, __u64) = (void *)BPF_FUNC_skb_store_bytes;
static long (*skb_change_head)(struct __sk_buff *, __u32, __u64) = (void *)BPF_FUNC_skb_change_head;
static long (*skb_adjust_room)(struct __sk_buff *, __s32, __u32, __u64) = (void *)BPF_FUNC_skb_adjust_room;
static long (*skb_pull)(struct __sk_buff *, __u32) = (void *)BPF_FUNC_skb_pull_data;
static long (*vlan_push)(struct __sk_buff *, __u16, __u16) = (void *)BPF_FUNC_skb_vlan_push;
static long (*vlan_pop)(struct __sk_buff *) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*l4_csum_replace)(struct __sk_buff *, __u32, __u64, __u64, __u64) = (void *)BPF_FUNC_l4_csum_replace;
static long (*redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;

#define UINT(name, value) int(*name)[value]
#define TYPE(name, value) value *name

#define swap16(n) __builtin_bswap16(n)
#define ETH_PPP_DISCOVERY 0x8863
#define ETH_PPP_SESSION 0x8864
#define PPP_IPV4 0x0021
#define PPP_IPV6 0x0057
#define FRONT 22
#define TAG 4
#define NETWORKS 8

struct network4 {
    __u32 address, mask;
};
struct network6 {
    __u64 address[2], mask[2];
};
struct bucket {
    __u64 cost, burst, until;
};
struct session {
    struct bucket up, down;
    struct network6 of6[NETWORKS];
    struct network4 of4[NETWORKS];
    __u32 port, has_local;
    __u64 link_local;
    __u16 mtu, mss4, mss6, number;
    __u8 peer[6], local[6];
    __u16 count4, count6;
};
struct usage {
    __u64 octets_in, octets_out, packets_in, packets_out, spoofed, limited;
};
enum counter {
    FRAMES_IN, FRAMES_OUT, CONTROL, MALFORMED, NO_SESSION, WRONG_STATION, SPOOFED, LIMITED, NO_HOST, TOO_LONG, NOT_SENT,
    NOT_DELIVERED, OTHER_PROTOCOL, COUNTERS,
};
struct front {
    __u8 to[6], from[6];
    __u16 ethertype;
    __u8 version, code;
    __u16 session, length, protocol;
} __attribute__((packed));
struct prefix4 {
    __u32 bits, address;
};
struct prefix6 {
    __u32 bits;
    __u8 address[16];
};

// By their numbers, since that is the quickest; those that are not there have a number of 0.
struct {
    UINT(type, BPF_MAP_TYPE_ARRAY);
    UINT(max_entries, 65536);
    TYPE(key, __u32);
    TYPE(value, struct session);
} sessions SECTION(".maps");
struct {
    UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    UINT(max_entries, 65536);
    TYPE(key, __u32);
    TYPE(value, struct usage);
} usages SECTION(".maps");
// Whose an address is: the host's own, which is nearly always asked for, and networks.
struct {
    UINT(type, BPF_MAP_TYPE_HASH);
    UINT(max_entries, 65536);
    TYPE(key, __u32);
    TYPE(value, __u32);
} hosts SECTION(".maps");
struct {
    UINT(type, BPF_MAP_TYPE_LPM_TRIE);
    UINT(max_entries, 524288);
    UINT(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct prefix4);
    TYPE(value, __u32);
} networks4 SECTION(".maps");
struct {
    UINT(type, BPF_MAP_TYPE_LPM_TRIE);
    UINT(max_entries, 524288);
    UINT(map_flags, BPF_F_NO_PREALLOC);
    TYPE(key, struct prefix6);
    TYPE(value, __u32);
} networks6 SECTION(".maps");
struct {
    UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    UINT(max_entries, COUNTERS);
    TYPE(key, __u32);
    TYPE(value, __u64);
} counters SECTION(".maps");
// The interface whose far end cuts.
struct {
    UINT(type, BPF_MAP_TYPE_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, __u32);
    TYPE(value, __u32);
} cutter SECTION(".maps");

INLINE void count(__u32 counter, __u64 n) {
    __u64 *at = map_lookup(&counters, &counter);
    if (at)
        *at += n;
}

INLINE struct session *session_of(const __u32 *number) {
    struct session *session = map_lookup(&sessions, number);
    return session && session->number ? session : 0;
}

INLINE struct usage *usage_of(__u32 number) {
    return map_lookup(&usages, &number);
}

// As `Bucket::take`; processors that take from it at once see each other.
INLINE int take(struct bucket *bucket, __u64 octets) {
    if (!bucket->cost)
        return 1;
    __u64 now = now_ns(), time = bucket->cost * octets >> 16;
    for (int i = 0; i < 4; i++) {
        __u64 old = bucket->until, until = (old > now ? old : now) + time;
        if (until - now > bucket->burst)
            return 0;
        if (__sync_val_compare_and_swap(&bucket->until, old, until) == old)
            return 1;
    }
    return 1;
}

INLINE int same_station(const __u8 *a, const __u8 *b) {
    return *(__u16 *)a == *(__u16 *)b && *(__u16 *)(a + 2) == *(__u16 *)(b + 2) && *(__u16 *)(a + 4) == *(__u16 *)(b + 4);
}

INLINE int is_own4(const struct session *session, __u32 source) {
    for (int i = 0; i < NETWORKS && i < session->count4; i++)
        if ((source & session->of4[i].mask) == session->of4[i].address)
            return 1;
    return 0;
}

INLINE int is_own6(const struct session *session, const __u64 *source) {
    for (int i = 0; i < NETWORKS && i < session->count6; i++) {
        const struct network6 *of = &session->of6[i];
        if ((source[0] & of->mask[0]) == of->address[0] && (source[1] & of->mask[1]) == of->address[1])
            return 1;
    }
    return 0;
}

// What is to become of a frame; of the last two its caller takes PPPoE off. What is dropped has been counted.
enum verdict { PASSES, DROPPED, IS_IPV4, IS_IPV6 };

INLINE enum verdict dropped(__u32 counter) {
    count(counter, 1);
    return DROPPED;
}

INLINE int is_link_local(const __u8 *address) {
    return address[0] == 0xfe && (address[1] & 0xc0) == 0x80;
}

INLINE __u16 protocol_of(enum verdict verdict) {
    return verdict == IS_IPV4 ? swap16(ETH_P_IP) : swap16(ETH_P_IPV6);
}

// A frame of `all` octets that came by the interface `index`; those from `data` to `end` can be read.
INLINE enum verdict judge(const __u8 *data, const __u8 *end, __u64 all, __u32 index) {
    const struct front *front = (const void *)data;
    if (data + ETH_HLEN > end)
        return dropped(MALFORMED);
    if (front->ethertype == swap16(ETH_PPP_DISCOVERY)) {
        count(FRAMES_IN, 1);
        count(CONTROL, 1);
        return PASSES;
    }
    if (front->ethertype != swap16(ETH_PPP_SESSION))
        return dropped(OTHER_PROTOCOL);
    count(FRAMES_IN, 1);
    if (data + FRONT > end)
        return dropped(MALFORMED);
    __u64 length = swap16(front->length);
    if (front->version != 0x11 || front->code || length < 2 || length + FRONT - 2 > all)
        return dropped(MALFORMED);
    __u16 protocol = swap16(front->protocol);
    if (protocol != PPP_IPV4 && protocol != PPP_IPV6) {
        count(CONTROL, 1);
        return PASSES;
    }
    __u32 number = swap16(front->session);
    struct session *session = session_of(&number);
    if (!session)
        return dropped(NO_SESSION);
    if (session->port != index || !same_station(front->from, session->peer) ||
        !same_station(front->to, session->local))
        return dropped(WRONG_STATION);
    const __u8 *packet = data + FRONT;
    __u64 octets;
    int own;
    if (protocol == PPP_IPV4) {
        if (packet + 20 > end)
            return dropped(MALFORMED);
        octets = swap16(*(__u16 *)(packet + 2));
        if (packet[0] >> 4 != 4 || octets < 20 || octets + 2 > length)
            return dropped(MALFORMED);
        own = is_own4(session, *(__u32 *)(packet + 12));
    } else {
        if (packet + 40 > end)
            return dropped(MALFORMED);
        octets = 40 + swap16(*(__u16 *)(packet + 4));
        // Of a jumbogram (RFC 2675) the system takes what the frame has, which nobody would have counted. PPP carries none.
        if (packet[0] >> 4 != 6 || octets + 2 > length || (octets == 40 && packet[6] == 0))
            return dropped(MALFORMED);
        __u64 source[2] = {0};
        __builtin_memcpy(source, packet + 8, 16);
        own = is_own6(session, source);
        const __u8 *to = packet + 24;
        int none = !source[0] && !source[1];
        int local = is_link_local(packet + 8);
        // What stays on the link is for whoever speaks to hosts there.
        if (none || local || is_link_local(to) || (to[0] == 0xff && (to[1] & 15) <= 2)) {
            if (own || none || (session->has_local && source[1] == session->link_local)) {
                count(CONTROL, 1);
                return PASSES;
            }
            own = 0;
        }
    }
    struct usage *usage = usage_of(number);
    if (!usage)
        return dropped(NO_SESSION);
    if (!own) {
        usage->spoofed++;
        return dropped(SPOOFED);
    }
    if (octets > session->mtu)
        return dropped(TOO_LONG);
    if (!take(&session->up, octets)) {
        usage->limited++;
        return dropped(LIMITED);
    }
    usage->packets_in++;
    usage->octets_in += octets;
    return protocol == PPP_IPV4 ? IS_IPV4 : IS_IPV6;
}

// A tag of VLAN 0 says a priority alone (IEEE 802.1Q section 6.9). tc's ingress is behind the kernel's taking it off.
INLINE int says_priority(const __u8 *data) {
    __u16 type = *(__u16 *)(data + ETH_HLEN - 2), tag = *(__u16 *)(data + ETH_HLEN);
    return (type == swap16(ETH_P_8021Q) || type == swap16(ETH_P_8021AD)) && !(tag & swap16(0x0fff));
}

SECTION("xdp.frags")
int access(struct xdp_md *ctx) {
    __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (data + ETH_HLEN + TAG <= end && says_priority(data)) {
        __u8 addresses[12];
        __builtin_memcpy(addresses, data, sizeof(addresses));
        long done = xdp_adjust_head(ctx, TAG);
        data = (void *)(long)ctx->data;
        end = (void *)(long)ctx->data_end;
        if (done || data + ETH_HLEN > end) {
            count(NOT_DELIVERED, 1);
            return XDP_DROP;
        }
        __builtin_memcpy(data, addresses, sizeof(addresses));
    }
    enum verdict verdict = judge(data, end, xdp_length(ctx), ctx->ingress_ifindex);
    if (verdict == PASSES)
        return XDP_PASS;
    if (verdict == DROPPED || data + ETH_HLEN > end)
        return XDP_DROP;
    struct ethhdr head;
    __builtin_memcpy(&head, data, 12);
    head.h_proto = protocol_of(verdict);
    long done = xdp_adjust_head(ctx, FRONT - ETH_HLEN);
    data = (void *)(long)ctx->data;
    end = (void *)(long)ctx->data_end;
    if (done || data + ETH_HLEN > end) {
        count(NOT_DELIVERED, 1);
        return XDP_DROP;
    }
    __builtin_memcpy(data, &head, ETH_HLEN);
    return XDP_PASS;
}

INLINE struct session *session_of4(__u32 address) {
    __u32 *number = map_lookup(&hosts, &address);
    if (!number) {
        struct prefix4 key = {.bits = 32, .address = address};
        number = map_lookup(&networks4, &key);
    }
    return number ? session_of(number) : 0;
}

INLINE struct session *session_of6(const __u8 *address) {
    struct prefix6 key = {.bits = 128};
    __builtin_memcpy(key.address, address, 16);
    __u32 *number = map_lookup(&networks6, &key);
    return number ? session_of(number) : 0;
}

// What must be known of a packet whose IP header begins at `at`.
struct seen {
    __u32 headers, tcp;
    __u8 version, syn;
};

// 0: its headers can be read. `seen->tcp` is where TCP begins; 0: it has none.
INLINE int look(struct __sk_buff *skb, __u32 at, struct seen *seen) {
    __u8 head[20] = {0};
    __u8 protocol;
    __u8 *data = (void *)(long)skb->data, *data_end = (void *)(long)skb->data_end;
    if (data + at + 20 <= data_end)
        __builtin_memcpy(head, data + at, 20);
    else if (skb_load(skb, at, head, 20))
        return -1;
    seen->version = head[0] >> 4;
    seen->tcp = seen->syn = 0;
    if (seen->version == 4) {
        protocol = head[9];
        seen->headers = (head[0] & 15) * 4;
        // A fragment that is not the first has no ports.
        if ((head[6] & 0x1f) || head[7])
            return 0;
    } else if (seen->version == 6) {
        protocol = head[6];
        seen->headers = 40;
    } else {
        return -1;
    }
    if (protocol == IPPROTO_UDP) {
        seen->headers += 8;
        return 0;
    }
    if (protocol != IPPROTO_TCP)
        return 0;
    __u32 tcp = at + seen->headers;
    __u8 own[2];
    if (skb_load(skb, tcp + 12, own, 2))
        return 0;
    seen->tcp = tcp;
    seen->syn = own[1] & 2;
    seen->headers += (own[0] >> 4) * 4;
    return 0;
}

// Lowers what a SYN announces (RFC 9293 section 3.7.1); `end` is behind TCP's options.
INLINE void lower_size(struct __sk_buff *skb, __u32 tcp, __u32 end, __u16 most) {
    __u32 at = tcp + 20;
    for (int i = 0; i < 40; i++) {
        __u8 option[4];
        if (at + 2 > end || skb_load(skb, at, option, 2) || option[0] == 0)
            return;
        if (option[0] == 1) {
            at += 1;
            continue;
        }
        if (option[1] < 2)
            return;
        if (option[0] == 2 && option[1] == 4 && at + 4 <= end && !skb_load(skb, at, option, 4)) {
            __u16 old = *(__u16 *)(option + 2), new = swap16(most);
            if (swap16(old) <= most || skb_store(skb, at + 2, &new, 2, 0))
                return;
            // At an odd place its octets count in the other order (RFC 1071 section 2 B).
            if ((at - tcp) & 1) {
                old = swap16(old);
                new = swap16(new);
            }
            l4_csum_replace(skb, tcp + 16, old, new, 2);
            return;
        }
        at += option[1];
    }
}

INLINE void lower_for(struct __sk_buff *skb, __u32 at, const struct seen *seen, const struct session *session) {
    __u16 most = seen->version == 4 ? session->mss4 : session->mss6;
    if (most)
        lower_size(skb, seen->tcp, at + seen->headers, most);
}

INLINE struct session *session_at(struct __sk_buff *skb, __u32 at, __u8 version, int source) {
    if (version == 4) {
        __u32 address;
        return skb_load(skb, at + (source ? 12 : 16), &address, 4) ? 0 : session_of4(address);
    }
    __u8 address[16];
    return skb_load(skb, at + (source ? 8 : 24), address, 16) ? 0 : session_of6(address);
}

// For a packet of a host, from Ethernet's header on.
INLINE void lower_syn(struct __sk_buff *skb) {
    struct seen seen;
    __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
    // Nearly all are no SYN, which is soon seen where the header has its usual length.
    if (data + ETH_HLEN + 34 <= end && data[ETH_HLEN] == 0x45 && (data[ETH_HLEN + 9] != IPPROTO_TCP || !(data[ETH_HLEN + 33] & 2)))
        return;
    if (skb->protocol != swap16(ETH_P_IP) && skb->protocol != swap16(ETH_P_IPV6))
        return;
    if (look(skb, ETH_HLEN, &seen) || !seen.tcp || !seen.syn)
        return;
    struct session *session = session_at(skb, ETH_HLEN, seen.version, 1);
    if (session)
        lower_for(skb, ETH_HLEN, &seen, session);
}

// Behind these programs stands the filter that drops all but PPPoE, for when they are gone: what they have unpacked has to pass it, and
// since Linux 6.6 does where a program says that it is good. PPPoE that is handed up goes on to it.
SECTION("classifier")
int lower(struct __sk_buff *skb) {
    lower_syn(skb);
    int unpacked = skb->protocol == swap16(ETH_P_IP) || skb->protocol == swap16(ETH_P_IPV6);
    return unpacked ? TC_ACT_OK : TC_ACT_UNSPEC;
}

SECTION("classifier")
int lower_only(struct __sk_buff *skb) {
    lower_syn(skb);
    return TC_ACT_UNSPEC;
}

// tc cannot take off a header that it does not know. But PPPoE's and PPP's protocol are as long as two tags of VLANs, which it knows,
// and it takes off tags of a packet whose protocol says that it has some, as it does when two more have been put on: the first
// stands beside the packet, and the second pushes it in.
INLINE int take_off(struct __sk_buff *skb, __u16 protocol) {
    __u16 tag = swap16(ETH_P_8021Q);
    struct {
        __u16 number, type, number_too, protocol;
    } rest = {0, tag, 0, protocol};
    // A sum that the card has made of all behind Ethernet's header has these octets in it.
    if (skb_store(skb, ETH_HLEN - 2, &tag, 2, 0) || skb_store(skb, ETH_HLEN, &rest, sizeof(rest), BPF_F_RECOMPUTE_CSUM))
        return -1;
    if (vlan_push(skb, tag, 0) || vlan_push(skb, tag, 0))
        return -1;
    for (int i = 0; i < 4; i++)
        if (vlan_pop(skb))
            return -1;
    return 0;
}

// `unpacked`: what it says of packets that it has unpacked.
INLINE int take_up(struct __sk_buff *skb, int unpacked) {
    // One of a VLAN is another interface's; that of number 0 says a priority alone. A second tag comes to light when the first is gone.
    if (skb->vlan_present && ((skb->vlan_tci & 0x0fff) || vlan_pop(skb) || skb->vlan_present)) {
        count(OTHER_PROTOCOL, 1);
        return TC_ACT_SHOT;
    }
    __u8 *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
    // Headers may stand in pages of the card's.
    if (data + FRONT + 40 > end) {
        skb_pull(skb, skb->len < FRONT + 40 ? skb->len : FRONT + 40);
        data = (void *)(long)skb->data;
        end = (void *)(long)skb->data_end;
    }
    enum verdict verdict = judge(data, end, skb->len, skb->ifindex);
    if (verdict == PASSES)
        return TC_ACT_UNSPEC;
    if (verdict == DROPPED)
        return TC_ACT_SHOT;
    if (take_off(skb, protocol_of(verdict))) {
        count(NOT_DELIVERED, 1);
        return TC_ACT_SHOT;
    }
    lower_syn(skb);
    return unpacked;
}

SECTION("classifier")
int access_tc(struct __sk_buff *skb) {
    return take_up(skb, TC_ACT_OK);
}

SECTION("classifier")
int access_tc_only(struct __sk_buff *skb) {
    return take_up(skb, TC_ACT_UNSPEC);
}

INLINE int shot(__u32 counter, __u64 n) {
    count(counter, n);
    return TC_ACT_SHOT;
}

INLINE void write_front(struct front *front, const struct session *session, __u8 version, __u32 octets) {
    __builtin_memcpy(front->to, session->peer, 6);
    __builtin_memcpy(front->from, session->local, 6);
    front->ethertype = swap16(ETH_PPP_SESSION);
    front->version = 0x11;
    front->code = 0;
    front->session = session->number;
    front->length = swap16((__u16)(octets + 2));
    front->protocol = version == 4 ? swap16(PPP_IPV4) : swap16(PPP_IPV6);
}

SECTION("classifier")
int host(struct __sk_buff *skb) {
    struct seen seen;
    if (look(skb, 0, &seen))
        return shot(MALFORMED, 1);
    struct session *session = session_at(skb, 0, seen.version, 0);
    if (!session)
        return shot(NO_HOST, 1);
    __u32 number = swap16(session->number);
    struct usage *usage = usage_of(number);
    if (!usage)
        return shot(NO_HOST, 1);
    __u64 packets = 1, octets = skb->len, longest = skb->len;
    if (skb->gso_size) {
        packets = skb->gso_segs ? skb->gso_segs : 1;
        octets += (packets - 1) * seen.headers;
        longest = seen.headers + skb->gso_size;
    }
    if (longest > session->mtu)
        return shot(TOO_LONG, packets);
    if (!take(&session->down, octets)) {
        usage->limited += packets;
        return shot(LIMITED, packets);
    }
    usage->packets_out += packets;
    usage->octets_out += octets;
    if (seen.syn)
        lower_for(skb, 0, &seen, session);
    if (skb->gso_size) {
        __u32 zero = 0, *by = map_lookup(&cutter, &zero);
        struct ethhdr head = {.h_proto = seen.version == 4 ? swap16(ETH_P_IP) : swap16(ETH_P_IPV6)};
        if (!by || skb_change_head(skb, ETH_HLEN, 0) || skb_store(skb, 0, &head, ETH_HLEN, 0))
            return shot(NOT_SENT, packets);
        return redirect(*by, 0);
    }
    struct front front;
    write_front(&front, session, seen.version, skb->len);
    __u32 port = session->port;
    if (skb_change_head(skb, FRONT, 0) || skb_store(skb, 0, &front, FRONT, 0))
        return shot(NOT_SENT, 1);
    count(FRAMES_OUT, 1);
    return redirect(port, 0);
}

SECTION("classifier")
int cut(struct __sk_buff *skb) {
    __u8 version = skb->protocol == swap16(ETH_P_IP) ? 4 : 6;
    if (version == 6 && skb->protocol != swap16(ETH_P_IPV6))
        return TC_ACT_SHOT;
    struct session *session = session_at(skb, ETH_HLEN, version, 0);
    if (!session)
        return shot(NO_HOST, 1);
    struct front front;
    write_front(&front, session, version, skb->len - ETH_HLEN);
    __u32 port = session->port;
    if (skb_adjust_room(skb, FRONT - ETH_HLEN, BPF_ADJ_ROOM_MAC, 0) || skb_store(skb, 0, &front, FRONT, 0))
        return shot(NOT_SENT, 1);
    count(FRAMES_OUT, 1);
    return redirect(port, 0);
}

char usher_license[] SECTION("license") = "Apache-2.0";
