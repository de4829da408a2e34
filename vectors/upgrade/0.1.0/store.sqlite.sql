BEGIN TRANSACTION;
CREATE TABLE nas (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    nasname varchar(128) NOT NULL,
    shortname varchar(32),
    type varchar(30) DEFAULT 'other',
    ports int(5),
    secret varchar(60) DEFAULT 'secret' NOT NULL,
    server varchar(64),
    community varchar(50),
    description varchar(200) DEFAULT 'RADIUS Client'
, require_ma varchar(4) DEFAULT 'auto', limit_proxy_state varchar(4) DEFAULT 'auto');
INSERT INTO "nas" VALUES(1,'203.0.113.0/24','switches','other',NULL,'switch-secret-1234',NULL,NULL,'','yes','auto');
CREATE TABLE nasreload (
    nasipaddress varchar(15) PRIMARY KEY,
    reloadtime datetime NOT NULL
);
CREATE TABLE radacct (
    radacctid INTEGER PRIMARY KEY AUTOINCREMENT,
    acctsessionid varchar(64) NOT NULL default '',
    acctuniqueid varchar(32) NOT NULL default '',
    username varchar(64) NOT NULL default '',
    realm varchar(64) default '',
    nasipaddress varchar(15) NOT NULL default '',
    nasportid varchar(32) default NULL,
    nasporttype varchar(32) default NULL,
    acctstarttime datetime NULL default NULL,
    acctupdatetime datetime NULL default NULL,
    acctstoptime datetime NULL default NULL,
    acctinterval int(12) default NULL,
    acctsessiontime int(12) default NULL,
    acctauthentic varchar(32) default NULL,
    connectinfo_start varchar(128) default NULL,
    connectinfo_stop varchar(128) default NULL,
    acctinputoctets bigint(20) default NULL,
    acctoutputoctets bigint(20) default NULL,
    calledstationid varchar(50) NOT NULL default '',
    callingstationid varchar(50) NOT NULL default '',
    acctterminatecause varchar(32) NOT NULL default '',
    servicetype varchar(32) default NULL,
    framedprotocol varchar(32) default NULL,
    framedipaddress varchar(15) NOT NULL default '',
    framedipv6address varchar(45) NOT NULL default '',
    framedipv6prefix varchar(45) NOT NULL default '',
    framedinterfaceid varchar(44) NOT NULL default '',
    delegatedipv6prefix varchar(45) NOT NULL default '',
    class varchar(64) default NULL
, usher_interims integer NOT NULL default 0);
INSERT INTO "radacct" VALUES(1,'open-1','7613b78df7fa475473d9baeefacd713d','clara','','192.0.2.1','3','',1795366676,1795366676,NULL,NULL,60,'',NULL,NULL,4294968296,2000,'','02-00-00-00-00-01','','','','192.0.2.10','','','','','',1);
INSERT INTO "radacct" VALUES(3,'done-1','c8eeaa356e6eed529bdceaf81064e212','nina','','192.0.2.1','7','',1795366676,1795366676,1795366676,NULL,5,'',NULL,NULL,10,20,'','','User-Request','','','','','','','','',0);
CREATE TABLE radcheck (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    username varchar(64) NOT NULL default '',
    attribute varchar(64) NOT NULL default '',
    op char(2) NOT NULL DEFAULT '==',
    value varchar(253) NOT NULL default ''
);
INSERT INTO "radcheck" VALUES(1,'clara','Cleartext-Password',':=','clear-pass');
INSERT INTO "radcheck" VALUES(2,'nina','NT-Password',':=','1899efeda0fa6b83fd7fe69eabccdd8d');
INSERT INTO "radcheck" VALUES(3,'nina','NAS-Port','==','7');
INSERT INTO "radcheck" VALUES(4,'arthur','Crypt-Password',':=','$argon2id$v=19$m=19456,t=2,p=1$8fmgBGMiAZ5VRit4CjReBA$b/xCriGvUKwHT48tUOEwIzbnSbMuhCbdRyExGXVv1+Y');
CREATE TABLE radgroupcheck (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    groupname varchar(64) NOT NULL default '',
    attribute varchar(64) NOT NULL default '',
    op char(2) NOT NULL DEFAULT '==',
    value varchar(253) NOT NULL default ''
);
INSERT INTO "radgroupcheck" VALUES(1,'guests','NAS-Port-Type','==','Ethernet');
CREATE TABLE radgroupreply (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    groupname varchar(64) NOT NULL default '',
    attribute varchar(64) NOT NULL default '',
    op char(2) NOT NULL DEFAULT '=',
    value varchar(253) NOT NULL default ''
);
INSERT INTO "radgroupreply" VALUES(1,'staff','Tunnel-Type','=','VLAN');
INSERT INTO "radgroupreply" VALUES(2,'staff','Tunnel-Medium-Type','=','IEEE-802');
INSERT INTO "radgroupreply" VALUES(3,'staff','Tunnel-Private-Group-Id','=','20');
INSERT INTO "radgroupreply" VALUES(4,'guests','Session-Timeout','=','600');
CREATE TABLE radpostauth (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    username varchar(64) NOT NULL default '',
    pass varchar(64) NOT NULL default '',
    reply varchar(32) NOT NULL default '',
    authdate timestamp NOT NULL,
    class varchar(64) default NULL
, callingstationid varchar(50) default NULL);
INSERT INTO "radpostauth" VALUES(1,'clara','','Access-Accept','2026-11-22 16:57:56',NULL,'');
CREATE TABLE radreply (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    username varchar(64) NOT NULL default '',
    attribute varchar(64) NOT NULL default '',
    op char(2) NOT NULL DEFAULT '=',
    value varchar(253) NOT NULL default ''
);
INSERT INTO "radreply" VALUES(1,'arthur','Session-Timeout','=','3600');
INSERT INTO "radreply" VALUES(2,'ann@example.org','Fall-Through','=','Yes');
CREATE TABLE radusergroup (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    username varchar(64) NOT NULL default '',
    groupname varchar(64) NOT NULL default '',
    priority int(11) NOT NULL default '1'
);
INSERT INTO "radusergroup" VALUES(1,'clara','staff',1);
INSERT INTO "radusergroup" VALUES(2,'001122334455','staff',1);
CREATE TABLE usher_schema (version INTEGER PRIMARY KEY);
INSERT INTO "usher_schema" VALUES(1);
INSERT INTO "usher_schema" VALUES(2);
CREATE INDEX username ON radacct (username);
CREATE INDEX acctstarttime ON radacct (acctstarttime);
CREATE INDEX check_username ON radcheck (username);
CREATE INDEX reply_username ON radreply (username);
CREATE INDEX check_groupname ON radgroupcheck (groupname);
CREATE INDEX reply_groupname ON radgroupreply (groupname);
CREATE INDEX usergroup_username ON radusergroup (username);
CREATE INDEX radpostauth_username ON radpostauth (username);
CREATE INDEX nasname ON nas (nasname);
CREATE INDEX usher_radacct_open ON radacct (nasipaddress) WHERE acctstoptime IS NULL;
CREATE UNIQUE INDEX usher_radacct_unique ON radacct (acctuniqueid);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('radgroupreply',4);
INSERT INTO "sqlite_sequence" VALUES('radgroupcheck',1);
INSERT INTO "sqlite_sequence" VALUES('radcheck',4);
INSERT INTO "sqlite_sequence" VALUES('radusergroup',2);
INSERT INTO "sqlite_sequence" VALUES('radreply',2);
INSERT INTO "sqlite_sequence" VALUES('nas',1);
INSERT INTO "sqlite_sequence" VALUES('radpostauth',1);
INSERT INTO "sqlite_sequence" VALUES('radacct',4);
COMMIT;
