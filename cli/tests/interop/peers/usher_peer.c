/* An extension of freeDiameter: the other side of Usher's Diameter, in tests and benchmarks.
 *
 *   LoadExtension = "usher_peer.so" : "server PASSWORD";
 *       answers AA-Request with success, and Diameter-EAP-Request with EAP-MD5 for that password;
 *   LoadExtension = "usher_peer.so" : "client REALM USER PASSWORD";
 *       once a peer is connected, logs in by EAP-MD5 (RFC 4072) and says on standard output how that ended:
 *       "usher_peer: RESULT <Result-Code> EAP <code>".
 *
 * freeDiameter names its extension interface in libfreediameter-dev; md5 is GnuTLS's, on which it is built. */
#include <freeDiameter/extension.h>
#include <gnutls/crypto.h>

enum { EAP_REQUEST = 1, EAP_RESPONSE = 2, EAP_SUCCESS = 3, EAP_FAILURE = 4, IDENTITY = 1, MD5_CHALLENGE = 4 };
enum { MULTI_ROUND_AUTH = 1001 };

static struct dict_object *eap_request, *aa_request, *eap_payload, *state_avp, *user_name;
static struct dict_object *auth_request_type, *auth_application, *result_code, *session_id;
static struct dict_object *destination_realm, *eap_application, *nas_application;
static char mode[16], realm[128], user[128], password[128];
static const uint8_t challenge[16] = "0123456789abcdef";
static pthread_t client_thread;
static int has_client_thread;

static int find(enum dict_object_type type, int by, const char *name, struct dict_object **object)
{
	return fd_dict_search(fd_g_config->cnf_dict, type, by, name, object, ENOENT);
}

static int add_octets(struct msg *msg, struct dict_object *model, const uint8_t *data, size_t len)
{
	struct avp *avp;
	union avp_value value;
	value.os.data = (uint8_t *)data;
	value.os.len = len;
	CHECK_FCT(fd_msg_avp_new(model, 0, &avp));
	CHECK_FCT(fd_msg_avp_setvalue(avp, &value));
	return fd_msg_avp_add(msg, MSG_BRW_LAST_CHILD, avp);
}

static int add_number(struct msg *msg, struct dict_object *model, uint32_t number)
{
	struct avp *avp;
	union avp_value value;
	value.u32 = number;
	CHECK_FCT(fd_msg_avp_new(model, 0, &avp));
	CHECK_FCT(fd_msg_avp_setvalue(avp, &value));
	return fd_msg_avp_add(msg, MSG_BRW_LAST_CHILD, avp);
}

static struct avp_hdr *get(struct msg *msg, struct dict_object *model)
{
	struct avp *avp = NULL;
	struct avp_hdr *header = NULL;
	if (fd_msg_search_avp(msg, model, &avp) || !avp || fd_msg_avp_hdr(avp, &header))
		return NULL;
	return header->avp_value ? header : NULL;
}

/* MD5(identifier, password, challenge), RFC 1994 section 4.1. */
static void md5_response(uint8_t identifier, const uint8_t *value, size_t len, uint8_t digest[16])
{
	gnutls_hash_hd_t hash;
	gnutls_hash_init(&hash, GNUTLS_DIG_MD5);
	gnutls_hash(hash, &identifier, 1);
	gnutls_hash(hash, password, strlen(password));
	gnutls_hash(hash, value, len);
	gnutls_hash_deinit(hash, digest);
}

static int copy_request_type(struct msg *request, struct msg *answer)
{
	struct avp_hdr *type = get(request, auth_request_type);
	return add_number(answer, auth_request_type, type ? type->avp_value->u32 : 3);
}

/* A server's answer to a Diameter-EAP-Request. */
static int answer_eap(struct msg **msg, struct avp *avp, struct session *session, void *data, enum disp_action *act)
{
	struct msg *request = *msg;
	struct avp_hdr *payload = get(request, eap_payload);
	uint8_t reply[64];
	size_t len = 4;
	char *result = "DIAMETER_AUTHENTICATION_REJECTED";

	if (payload && payload->avp_value->os.len >= 5) {
		const uint8_t *eap = payload->avp_value->os.data;
		size_t given = payload->avp_value->os.len;
		if (eap[0] == EAP_RESPONSE && eap[4] == IDENTITY) {
			len = 6 + sizeof challenge;
			reply[0] = EAP_REQUEST;
			reply[1] = eap[1] + 1;
			reply[4] = MD5_CHALLENGE;
			reply[5] = sizeof challenge;
			memcpy(reply + 6, challenge, sizeof challenge);
			result = "DIAMETER_MULTI_ROUND_AUTH";
		} else {
			uint8_t right[16];
			md5_response(eap[1], challenge, sizeof challenge, right);
			int good = eap[0] == EAP_RESPONSE && eap[4] == MD5_CHALLENGE && given >= 22 && eap[5] == 16
				&& memcmp(eap + 6, right, 16) == 0;
			reply[0] = good ? EAP_SUCCESS : EAP_FAILURE;
			reply[1] = eap[1];
			if (good)
				result = "DIAMETER_SUCCESS";
		}
	} else {
		reply[0] = EAP_FAILURE;
		reply[1] = 0;
	}
	reply[2] = 0;
	reply[3] = (uint8_t)len;
	CHECK_FCT(fd_msg_new_answer_from_req(fd_g_config->cnf_dict, msg, 0));
	CHECK_FCT(fd_msg_rescode_set(*msg, result, NULL, NULL, 1));
	CHECK_FCT(add_number(*msg, auth_application, 5));
	CHECK_FCT(copy_request_type(request, *msg));
	CHECK_FCT(add_octets(*msg, eap_payload, reply, len));
	*act = DISP_ACT_SEND;
	return 0;
}

/* A server's answer to an AA-Request: everybody is let in. */
static int answer_aa(struct msg **msg, struct avp *avp, struct session *session, void *data, enum disp_action *act)
{
	struct msg *request = *msg;
	CHECK_FCT(fd_msg_new_answer_from_req(fd_g_config->cnf_dict, msg, 0));
	CHECK_FCT(fd_msg_rescode_set(*msg, "DIAMETER_SUCCESS", NULL, NULL, 1));
	CHECK_FCT(add_number(*msg, auth_application, 1));
	CHECK_FCT(copy_request_type(request, *msg));
	*act = DISP_ACT_SEND;
	return 0;
}

static void say(uint32_t result, int eap)
{
	printf("usher_peer: RESULT %u EAP %d\n", result, eap);
	fflush(stdout);
}

static void answered(void *data, struct msg **msg);

static int ask(const uint8_t *eap, size_t len, const uint8_t *state, size_t state_len, struct msg *before)
{
	struct msg *msg;
	CHECK_FCT(fd_msg_new(eap_request, MSGFL_ALLOC_ETEID, &msg));
	if (before) {
		struct avp_hdr *id = get(before, session_id);
		if (!id)
			return EINVAL;
		CHECK_FCT(add_octets(msg, session_id, id->avp_value->os.data, id->avp_value->os.len));
	} else {
		CHECK_FCT(fd_msg_new_session(msg, (uint8_t *)"eap", 3));
	}
	CHECK_FCT(add_number(msg, auth_application, 5));
	CHECK_FCT(fd_msg_add_origin(msg, 0));
	CHECK_FCT(add_octets(msg, destination_realm, (uint8_t *)realm, strlen(realm)));
	CHECK_FCT(add_number(msg, auth_request_type, 3));
	CHECK_FCT(add_octets(msg, user_name, (uint8_t *)user, strlen(user)));
	CHECK_FCT(add_octets(msg, eap_payload, eap, len));
	if (state)
		CHECK_FCT(add_octets(msg, state_avp, state, state_len));
	return fd_msg_send(&msg, answered, NULL);
}

/* The client's next step after an answer. */
static void answered(void *data, struct msg **msg)
{
	struct avp_hdr *result = get(*msg, result_code), *payload = get(*msg, eap_payload);
	struct avp_hdr *state = get(*msg, state_avp);
	uint32_t code = result ? result->avp_value->u32 : 0;
	const uint8_t *eap = payload ? payload->avp_value->os.data : NULL;
	size_t len = payload ? payload->avp_value->os.len : 0;

	if (code == MULTI_ROUND_AUTH && len >= 6 && eap[4] == MD5_CHALLENGE && (size_t)eap[5] + 6 <= len) {
		uint8_t reply[22] = { EAP_RESPONSE, eap[1], 0, 22, MD5_CHALLENGE, 16 };
		md5_response(eap[1], eap + 6, eap[5], reply + 6);
		if (ask(reply, sizeof reply, state ? state->avp_value->os.data : NULL,
			state ? state->avp_value->os.len : 0, *msg))
			say(0, 0);
	} else {
		say(code, len > 0 ? eap[0] : 0);
	}
	fd_msg_free(*msg);
	*msg = NULL;
}

static int connected(void)
{
	struct fd_list *at;
	int found = 0;
	pthread_rwlock_rdlock(&fd_g_peers_rw);
	for (at = fd_g_peers.next; at != &fd_g_peers; at = at->next)
		found |= fd_peer_get_state((struct peer_hdr *)at->o) == STATE_OPEN;
	pthread_rwlock_unlock(&fd_g_peers_rw);
	return found;
}

static void *client(void *unused)
{
	uint8_t eap[5 + sizeof user];
	size_t len = 5 + strlen(user);
	while (!connected())
		usleep(20000);
	eap[0] = EAP_RESPONSE;
	eap[1] = 1;
	eap[2] = 0;
	eap[3] = (uint8_t)len;
	eap[4] = IDENTITY;
	memcpy(eap + 5, user, strlen(user));
	if (ask(eap, len, NULL, 0, NULL))
		say(0, 0);
	return NULL;
}

static int entry(char *configuration)
{
	if (!configuration || sscanf(configuration, "%15s", mode) != 1)
		return EINVAL;
	CHECK_FCT(find(DICT_APPLICATION, APPLICATION_BY_NAME, "Diameter Extensible Authentication Protocol (EAP) Application", &eap_application));
	CHECK_FCT(find(DICT_APPLICATION, APPLICATION_BY_NAME, "Diameter Network Access Server Application", &nas_application));
	CHECK_FCT(find(DICT_COMMAND, CMD_BY_NAME, "Diameter-EAP-Request", &eap_request));
	CHECK_FCT(find(DICT_COMMAND, CMD_BY_NAME, "AA-Request", &aa_request));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "EAP-Payload", &eap_payload));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "State", &state_avp));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "User-Name", &user_name));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "Auth-Request-Type", &auth_request_type));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "Auth-Application-Id", &auth_application));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "Result-Code", &result_code));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "Session-Id", &session_id));
	CHECK_FCT(find(DICT_AVP, AVP_BY_NAME, "Destination-Realm", &destination_realm));
	CHECK_FCT(fd_disp_app_support(eap_application, NULL, 1, 0));
	CHECK_FCT(fd_disp_app_support(nas_application, NULL, 1, 0));
	if (strcmp(mode, "server") == 0) {
		struct disp_when when;
		if (sscanf(configuration, "%*s %127s", password) != 1)
			return EINVAL;
		memset(&when, 0, sizeof when);
		when.app = eap_application;
		when.command = eap_request;
		CHECK_FCT(fd_disp_register(answer_eap, DISP_HOW_CC, &when, NULL, NULL));
		when.app = nas_application;
		when.command = aa_request;
		return fd_disp_register(answer_aa, DISP_HOW_CC, &when, NULL, NULL);
	}
	if (strcmp(mode, "client") == 0) {
		if (sscanf(configuration, "%*s %127s %127s %127s", realm, user, password) != 3)
			return EINVAL;
		CHECK_POSIX(pthread_create(&client_thread, NULL, client, NULL));
		has_client_thread = 1;
		return 0;
	}
	return EINVAL;
}

void fd_ext_fini(void)
{
	if (has_client_thread) {
		pthread_cancel(client_thread);
		pthread_join(client_thread, NULL);
	}
}

EXTENSION_ENTRY("usher_peer", entry, "dict_nasreq", "dict_eap");
