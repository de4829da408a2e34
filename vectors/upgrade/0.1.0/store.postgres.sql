SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE public.nas (
    id integer NOT NULL,
    nasname text NOT NULL,
    shortname text NOT NULL,
    type text DEFAULT 'other'::text NOT NULL,
    ports integer,
    secret text NOT NULL,
    server text,
    community text,
    description text,
    require_ma text DEFAULT 'auto'::text,
    limit_proxy_state text DEFAULT 'auto'::text
);
CREATE SEQUENCE public.nas_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.nas_id_seq OWNED BY public.nas.id;
CREATE TABLE public.nasreload (
    nasipaddress inet NOT NULL,
    reloadtime timestamp with time zone NOT NULL
);
CREATE TABLE public.radacct (
    radacctid bigint NOT NULL,
    acctsessionid text NOT NULL,
    acctuniqueid text NOT NULL,
    username text,
    realm text,
    nasipaddress inet NOT NULL,
    nasportid text,
    nasporttype text,
    acctstarttime timestamp with time zone,
    acctupdatetime timestamp with time zone,
    acctstoptime timestamp with time zone,
    acctinterval bigint,
    acctsessiontime bigint,
    acctauthentic text,
    connectinfo_start text,
    connectinfo_stop text,
    acctinputoctets bigint,
    acctoutputoctets bigint,
    calledstationid text,
    callingstationid text,
    acctterminatecause text,
    servicetype text,
    framedprotocol text,
    framedipaddress inet,
    framedipv6address inet,
    framedipv6prefix inet,
    framedinterfaceid text,
    delegatedipv6prefix inet,
    class text,
    usher_interims bigint DEFAULT 0 NOT NULL
);
CREATE SEQUENCE public.radacct_radacctid_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radacct_radacctid_seq OWNED BY public.radacct.radacctid;
CREATE TABLE public.radcheck (
    id integer NOT NULL,
    username text DEFAULT ''::text NOT NULL,
    attribute text DEFAULT ''::text NOT NULL,
    op character varying(2) DEFAULT '=='::character varying NOT NULL,
    value text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE public.radcheck_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radcheck_id_seq OWNED BY public.radcheck.id;
CREATE TABLE public.radgroupcheck (
    id integer NOT NULL,
    groupname text DEFAULT ''::text NOT NULL,
    attribute text DEFAULT ''::text NOT NULL,
    op character varying(2) DEFAULT '=='::character varying NOT NULL,
    value text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE public.radgroupcheck_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radgroupcheck_id_seq OWNED BY public.radgroupcheck.id;
CREATE TABLE public.radgroupreply (
    id integer NOT NULL,
    groupname text DEFAULT ''::text NOT NULL,
    attribute text DEFAULT ''::text NOT NULL,
    op character varying(2) DEFAULT '='::character varying NOT NULL,
    value text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE public.radgroupreply_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radgroupreply_id_seq OWNED BY public.radgroupreply.id;
CREATE TABLE public.radpostauth (
    id bigint NOT NULL,
    username text NOT NULL,
    pass text,
    reply text,
    calledstationid text,
    callingstationid text,
    authdate timestamp with time zone DEFAULT now() NOT NULL,
    class text
);
CREATE SEQUENCE public.radpostauth_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radpostauth_id_seq OWNED BY public.radpostauth.id;
CREATE TABLE public.radreply (
    id integer NOT NULL,
    username text DEFAULT ''::text NOT NULL,
    attribute text DEFAULT ''::text NOT NULL,
    op character varying(2) DEFAULT '='::character varying NOT NULL,
    value text DEFAULT ''::text NOT NULL
);
CREATE SEQUENCE public.radreply_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radreply_id_seq OWNED BY public.radreply.id;
CREATE TABLE public.radusergroup (
    id integer NOT NULL,
    username text DEFAULT ''::text NOT NULL,
    groupname text DEFAULT ''::text NOT NULL,
    priority integer DEFAULT 0 NOT NULL
);
CREATE SEQUENCE public.radusergroup_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.radusergroup_id_seq OWNED BY public.radusergroup.id;
CREATE TABLE public.usher_schema (
    version bigint NOT NULL
);
ALTER TABLE ONLY public.nas ALTER COLUMN id SET DEFAULT nextval('public.nas_id_seq'::regclass);
ALTER TABLE ONLY public.radacct ALTER COLUMN radacctid SET DEFAULT nextval('public.radacct_radacctid_seq'::regclass);
ALTER TABLE ONLY public.radcheck ALTER COLUMN id SET DEFAULT nextval('public.radcheck_id_seq'::regclass);
ALTER TABLE ONLY public.radgroupcheck ALTER COLUMN id SET DEFAULT nextval('public.radgroupcheck_id_seq'::regclass);
ALTER TABLE ONLY public.radgroupreply ALTER COLUMN id SET DEFAULT nextval('public.radgroupreply_id_seq'::regclass);
ALTER TABLE ONLY public.radpostauth ALTER COLUMN id SET DEFAULT nextval('public.radpostauth_id_seq'::regclass);
ALTER TABLE ONLY public.radreply ALTER COLUMN id SET DEFAULT nextval('public.radreply_id_seq'::regclass);
ALTER TABLE ONLY public.radusergroup ALTER COLUMN id SET DEFAULT nextval('public.radusergroup_id_seq'::regclass);
INSERT INTO public.nas VALUES (1, '203.0.113.0/24', 'switches', 'other', NULL, 'switch-secret-1234', NULL, NULL, '', 'yes', 'auto');
INSERT INTO public.radacct VALUES (1, 'open-1', '7613b78df7fa475473d9baeefacd713d', 'clara', '', '192.0.2.1', '3', '', '2026-11-22 16:57:52+00', '2026-11-22 16:57:52+00', NULL, NULL, 60, '', NULL, NULL, 4294968296, 2000, '', '02-00-00-00-00-01', '', '', '', '192.0.2.10', NULL, NULL, NULL, NULL, '', 1);
INSERT INTO public.radacct VALUES (3, 'done-1', 'c8eeaa356e6eed529bdceaf81064e212', 'nina', '', '192.0.2.1', '7', '', '2026-11-22 16:57:52+00', '2026-11-22 16:57:52+00', '2026-11-22 16:57:52+00', NULL, 5, '', NULL, NULL, 10, 20, '', '', 'User-Request', '', '', NULL, NULL, NULL, NULL, NULL, '', 0);
INSERT INTO public.radcheck VALUES (1, 'clara', 'Cleartext-Password', ':=', 'clear-pass');
INSERT INTO public.radcheck VALUES (2, 'nina', 'NT-Password', ':=', '1899efeda0fa6b83fd7fe69eabccdd8d');
INSERT INTO public.radcheck VALUES (3, 'nina', 'NAS-Port', '==', '7');
INSERT INTO public.radcheck VALUES (4, 'arthur', 'Crypt-Password', ':=', '$argon2id$v=19$m=19456,t=2,p=1$WQ/pkR08awrBOja19EJR6A$81wvwo5AWeHZ5feV6DPxijwBymMNg+n7gSbOPTCPZx4');
INSERT INTO public.radgroupcheck VALUES (1, 'guests', 'NAS-Port-Type', '==', 'Ethernet');
INSERT INTO public.radgroupreply VALUES (1, 'staff', 'Tunnel-Type', '=', 'VLAN');
INSERT INTO public.radgroupreply VALUES (2, 'staff', 'Tunnel-Medium-Type', '=', 'IEEE-802');
INSERT INTO public.radgroupreply VALUES (3, 'staff', 'Tunnel-Private-Group-Id', '=', '20');
INSERT INTO public.radgroupreply VALUES (4, 'guests', 'Session-Timeout', '=', '600');
INSERT INTO public.radpostauth VALUES (1, 'clara', '', 'Access-Accept', NULL, '', '2026-11-22 16:57:52+00', NULL);
INSERT INTO public.radreply VALUES (1, 'arthur', 'Session-Timeout', '=', '3600');
INSERT INTO public.radreply VALUES (2, 'ann@example.org', 'Fall-Through', '=', 'Yes');
INSERT INTO public.radusergroup VALUES (1, 'clara', 'staff', 1);
INSERT INTO public.radusergroup VALUES (2, '001122334455', 'staff', 1);
INSERT INTO public.usher_schema VALUES (1);
INSERT INTO public.usher_schema VALUES (2);
SELECT pg_catalog.setval('public.nas_id_seq', 1, true);
SELECT pg_catalog.setval('public.radacct_radacctid_seq', 4, true);
SELECT pg_catalog.setval('public.radcheck_id_seq', 4, true);
SELECT pg_catalog.setval('public.radgroupcheck_id_seq', 1, true);
SELECT pg_catalog.setval('public.radgroupreply_id_seq', 4, true);
SELECT pg_catalog.setval('public.radpostauth_id_seq', 1, true);
SELECT pg_catalog.setval('public.radreply_id_seq', 2, true);
SELECT pg_catalog.setval('public.radusergroup_id_seq', 2, true);
ALTER TABLE ONLY public.nas
    ADD CONSTRAINT nas_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.nasreload
    ADD CONSTRAINT nasreload_pkey PRIMARY KEY (nasipaddress);
ALTER TABLE ONLY public.radacct
    ADD CONSTRAINT radacct_acctuniqueid_key UNIQUE (acctuniqueid);
ALTER TABLE ONLY public.radacct
    ADD CONSTRAINT radacct_pkey PRIMARY KEY (radacctid);
ALTER TABLE ONLY public.radcheck
    ADD CONSTRAINT radcheck_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.radgroupcheck
    ADD CONSTRAINT radgroupcheck_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.radgroupreply
    ADD CONSTRAINT radgroupreply_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.radpostauth
    ADD CONSTRAINT radpostauth_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.radreply
    ADD CONSTRAINT radreply_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.radusergroup
    ADD CONSTRAINT radusergroup_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.usher_schema
    ADD CONSTRAINT usher_schema_pkey PRIMARY KEY (version);
CREATE INDEX nas_nasname ON public.nas USING btree (nasname);
CREATE INDEX radacct_start_user_idx ON public.radacct USING btree (acctstarttime, username);
CREATE INDEX radcheck_username ON public.radcheck USING btree (username, attribute);
CREATE INDEX radgroupcheck_groupname ON public.radgroupcheck USING btree (groupname, attribute);
CREATE INDEX radgroupreply_groupname ON public.radgroupreply USING btree (groupname, attribute);
CREATE INDEX radpostauth_username_idx ON public.radpostauth USING btree (username);
CREATE INDEX radreply_username ON public.radreply USING btree (username, attribute);
CREATE INDEX radusergroup_username ON public.radusergroup USING btree (username);
CREATE INDEX usher_radacct_open ON public.radacct USING btree (nasipaddress) WHERE (acctstoptime IS NULL);
