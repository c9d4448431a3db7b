//! Who may talk to this server at all: the `Host` that a request names, the web page that it comes from, and the size
//! of its head. Any web page can reach loopback, by its name or (DNS rebinding) by its own.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use levada_api::{ErrorCode, Problem};

use crate::ServeOptions;
use crate::start::StartError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The address of the machine that a connection came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddress(pub(crate) SocketAddr);

/// The rules, read once from the options.
#[derive(Debug)]
pub(crate) struct Gate {
    hosts: Vec<String>,
    origins: Vec<HeaderValue>,
    headers_max: usize,
    header_bytes_max: usize,
}

impl Gate {
    /// # Errors
    /// When a name or origin of the options is not one.
    pub(crate) fn new(options: &ServeOptions) -> Result<Self, StartError> {
        let hosts = options.allowed_hosts.iter().map(|host| checked_host(host)).collect::<Result<_, _>>()?;
        let origins = options.allowed_origins.iter().map(|origin| checked_origin(origin)).collect::<Result<_, _>>()?;
        Ok(Self { hosts, origins, headers_max: options.max_headers, header_bytes_max: options.max_header_bytes })
    }

    /// The origins that may read and write from web pages.
    pub(crate) fn origins(&self) -> &[HeaderValue] {
        &self.origins
    }

    /// Whether the request comes from a page of an allowed origin.
    pub(crate) fn allows_origin(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        matches!((origins.next(), origins.next()), (Some(origin), None) if self.origins.contains(origin))
    }

    /// Lets a request pass, or says why not.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), Problem> {
        self.check_size(parts)?;
        let host = host(parts)?;
        let local = parts.extensions.get::<LocalAddress>().map(|local| local.0.ip());
        let mut named = [Some(&host), parts.uri.authority()].into_iter().flatten();
        if let Some(other) = named.find(|name| !self.allows_host(name, local)) {
            let detail = format!("this server does not answer for {other}; --allowed-hosts lets it");
            return Err(Problem::new(ErrorCode::MisdirectedRequest, detail));
        }
        // Through a WebSocket a page could write and read, whatever the method that opens it.
        let reads = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS)
            && !parts.headers.contains_key(header::UPGRADE);
        if !reads && !self.allows_origin(&parts.headers) && is_cross_site(&parts.headers, &host) {
            let detail = "a web page of another site may not write here, nor open a WebSocket; --allowed-origins lets its origin";
            return Err(Problem::new(ErrorCode::CrossSite, detail));
        }
        Ok(())
    }

    fn check_size(&self, parts: &Parts) -> Result<(), Problem> {
        let too_large = |limit: &str, most: usize, what: String| {
            let problem = Problem::new(ErrorCode::HeadersTooLarge, format!("{what}; the setting is {limit}"));
            Err(problem.limited(limit, most as u64))
        };
        let count = parts.headers.len();
        if count > self.headers_max {
            return too_large("--max-headers", self.headers_max, format!("the request has {count} headers"));
        }
        let path = parts.uri.path_and_query().map_or(0, |path| path.as_str().len());
        let bytes = path + parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
        if bytes > self.header_bytes_max {
            let what = format!("the request's path and headers have {bytes} bytes");
            return too_large("--max-header-bytes", self.header_bytes_max, what);
        }
        Ok(())
    }

    /// Loopback names, the address that the connection came to, and the allowed hosts; loopback with any port.
    fn allows_host(&self, named: &Authority, local: Option<IpAddr>) -> bool {
        let host = named.host();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.eq_ignore_ascii_case("localhost") {
            return true;
        }
        if let Ok(ip) = bare.parse::<IpAddr>()
            && (ip.is_loopback() || local.is_some_and(|local| local.to_canonical() == ip.to_canonical()))
        {
            return true;
        }
        let is_named = |allowed: &String| [host, named.as_str()].iter().any(|it| it.eq_ignore_ascii_case(allowed));
        self.hosts.iter().any(is_named)
    }
}

/// The one `Host` of a request (RFC 9112 §3.2).
fn host(parts: &Parts) -> Result<Authority, Problem> {
    let mut all = parts.headers.get_all(header::HOST).iter();
    let invalid = |detail: &str| Problem::new(ErrorCode::InvalidRequest, detail);
    match (all.next(), all.next()) {
        (Some(host), None) => {
            let authority = Authority::try_from(host.as_bytes()).ok().filter(|named| !named.as_str().contains('@'));
            authority.ok_or_else(|| invalid("the Host header is not a host with an optional port"))
        }
        (None, _) => Err(invalid("the request has no Host header")),
        (Some(_), Some(_)) => Err(invalid("the request has several Host headers")),
    }
}

/// Whether a browser says that another site's page sends this (Fetch §3.1, Fetch Metadata §2.2). Programs that are no
/// browsers send neither header.
fn is_cross_site(headers: &HeaderMap, host: &Authority) -> bool {
    if headers.get_all(header::ORIGIN).iter().any(|origin| !is_same_origin(origin, host)) {
        return true;
    }
    headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "cross-site")
}

fn is_same_origin(origin: &HeaderValue, host: &Authority) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    // Behind a proxy that ends TLS the page is https and we are not.
    let rest = [("http://", ":80"), ("https://", ":443")].into_iter().find_map(|(scheme, port)| {
        let named = origin.strip_prefix(scheme)?;
        let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
        let bare = |name: &str| name.strip_suffix(port).unwrap_or(name).to_owned();
        Some(same(&bare(named), &bare(host.as_str())))
    });
    rest.unwrap_or(false)
}

fn checked_host(text: &str) -> Result<String, StartError> {
    let valid =
        Authority::try_from(text).is_ok_and(|named| !named.as_str().contains(['@', '*']) && has_sound_port(&named));
    if valid {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(StartError::option("--allowed-hosts", text, "is not a host or host:port, such as broker.example.org:8080"))
    }
}

/// Whether the port, if there is one, is a number that a socket can have; the parser of names takes any digits.
fn has_sound_port(named: &Authority) -> bool {
    named.as_str() == named.host() || named.port_u16().is_some_and(|port| port > 0)
}

/// An origin as browsers write it (RFC 6454 §6.2), so that comparing bytes is enough.
fn checked_origin(text: &str) -> Result<HeaderValue, StartError> {
    let refused = |rule: &str| StartError::option("--allowed-origins", text, rule);
    if text == "*" {
        return Err(refused("would open the broker to every web page; name the origins"));
    }
    let example = "is not an origin: scheme://host with an optional port and nothing behind it, in lower case, such as \
                   https://app.example.org";
    let named =
        text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).ok_or_else(|| refused(example))?;
    let default_port = if text.starts_with("https") { ":443" } else { ":80" };
    let authority = Authority::try_from(named).map_err(|_| refused(example))?;
    let odd = |c: char| c.is_ascii_uppercase() || matches!(c, '@' | '*');
    if authority.as_str().contains(odd) || authority.host().is_empty() || !has_sound_port(&authority) {
        return Err(refused(example));
    }
    if named.ends_with(default_port) {
        return Err(refused("names the scheme's own port, which browsers leave out"));
    }
    HeaderValue::try_from(text).map_err(|_| refused(example))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn gate(hosts: &[&str], origins: &[&str]) -> Result<Gate, StartError> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Gate::new(&ServeOptions {
            allowed_hosts: owned(hosts),
            allowed_origins: owned(origins),
            ..ServeOptions::default()
        })
    }

    fn check(gate: &Gate, method: Method, headers: &[(&str, &str)]) -> Option<ErrorCode> {
        let mut request = Request::builder().method(method).uri("/v1/topics");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).expect("valid").into_parts().0;
        parts.extensions.insert(LocalAddress("192.0.2.7:8080".parse().expect("an address")));
        gate.check(&parts).err().map(|problem| problem.code)
    }

    #[test]
    fn loopback_the_own_address_and_allowed_hosts_are_answered() {
        let gate = gate(&["broker.example.org", "other.example.org:8080"], &[]).expect("valid");
        for host in [
            "localhost",
            "LocalHost:1",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]",
            "[::1]:80",
            "192.0.2.7",
            "192.0.2.7:9",
            "broker.example.org",
            "Broker.Example.ORG:99",
            "other.example.org:8080",
        ] {
            assert_eq!(check(&gate, Method::GET, &[("host", host)]), None, "{host}");
        }
    }

    #[test]
    fn other_hosts_are_refused() {
        let gate = gate(&["other.example.org:8080"], &[]).expect("valid");
        for host in [
            "evil.example.net",
            "localhost.evil.example.net",
            "evil.localhost",
            "127.0.0.1.evil.example.net",
            "192.0.2.8",
            "other.example.org",
            "other.example.org:8081",
            "[::2]",
        ] {
            assert_eq!(check(&gate, Method::GET, &[("host", host)]), Some(ErrorCode::MisdirectedRequest), "{host}");
        }
        for bad in [&[][..], &[("host", "")], &[("host", "a b")], &[("host", "u@localhost")]] {
            assert_eq!(check(&gate, Method::GET, bad), Some(ErrorCode::InvalidRequest), "{bad:?}");
        }
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(&gate, Method::GET, &twice), Some(ErrorCode::InvalidRequest));
    }

    #[test]
    fn another_sites_page_reads_but_does_not_write() {
        let gate = gate(&[], &["https://app.example.org"]).expect("valid");
        let host = ("host", "localhost:8080");
        for (allowed, headers) in [
            (true, &[host][..]),
            (true, &[host, ("origin", "http://localhost:8080")]),
            (true, &[host, ("origin", "http://LOCALHOST:8080"), ("sec-fetch-site", "same-origin")]),
            (true, &[host, ("origin", "https://app.example.org"), ("sec-fetch-site", "cross-site")]),
            (true, &[host, ("sec-fetch-site", "none")]),
            (false, &[host, ("origin", "http://localhost:3000")]),
            (false, &[host, ("origin", "http://localhost")]),
            (false, &[host, ("origin", "null")]),
            (false, &[host, ("origin", "")]),
            (false, &[host, ("origin", "http://app.example.org")]),
            (false, &[host, ("origin", "https://app.example.org.evil.net")]),
            (false, &[host, ("origin", "https://app.example.org"), ("origin", "https://evil.example.net")]),
            (false, &[host, ("sec-fetch-site", "cross-site")]),
        ] {
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let expected = if allowed { None } else { Some(ErrorCode::CrossSite) };
                assert_eq!(check(&gate, method, headers), expected, "{headers:?}");
            }
            assert_eq!(check(&gate, Method::GET, headers), None, "{headers:?}");
            let upgrade = [headers, &[("upgrade", "websocket")]].concat();
            let expected = if allowed { None } else { Some(ErrorCode::CrossSite) };
            assert_eq!(check(&gate, Method::GET, &upgrade), expected, "{upgrade:?}");
        }
    }

    #[test]
    fn a_default_port_is_the_same_as_none() {
        let gate = gate(&["broker.example.org"], &[]).expect("valid");
        let headers = [("host", "broker.example.org:443"), ("origin", "https://broker.example.org")];
        assert_eq!(check(&gate, Method::POST, &headers), None);
    }

    #[test]
    fn nonsense_is_refused_at_the_start_by_name() {
        for origin in [
            "*",
            "GET",
            "GET, POST",
            "app.example.org",
            "http://app.example.org/",
            "http://app.example.org/x",
            "null",
            "",
            "http://",
            "http://*.example.org",
            "http://App.example.org",
            "ftp://a",
            "http://a:80",
            "https://u@a",
            "http://a b",
            "http://a.b:99999",
            "http://a.b:0",
            "http://a.b:",
        ] {
            let error = gate(&[], &[origin]).expect_err(origin).to_string();
            assert!(error.starts_with("--allowed-origins"), "{error}");
        }
        for host in ["", "*", "http://a", "a/b", "u@a", "a:65536", "a:0", "a:"] {
            let error = gate(&[host], &[]).expect_err(host).to_string();
            assert!(error.starts_with("--allowed-hosts"), "{error}");
        }
    }
}
