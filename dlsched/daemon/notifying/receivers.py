"""Which receivers a job's notices have, and what a job may ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from dlsched.core.errors import BadInput, shorten
from dlsched.daemon.settings import NotificationsSection
from dlsched.daemon.site_rules.webhook_urls import is_allowed, read_url
from dlsched.system.own_domain import own_domain

MOST_ADDRESSES = 10
ANY_DOMAIN = "*"  # among the domains of a site
# nothing that a mail program could take for an option, or for two addresses
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._%+=-]{0,63}(@[A-Za-z0-9][A-Za-z0-9.-]{0,252})?")


class Receiver(NamedTuple):
    """Where notices go: the site's command (to: empty), a URL, or an address."""

    kind: Literal["command", "url", "mail"]
    to: str = ""

    @property
    def key(self) -> str:
        """Names the receiver in the record of what was delivered."""
        return f"{self.kind}:{self.to}"

    def __str__(self) -> str:
        """As users and logs are shown it; the path of a URL may be a secret."""
        if self.kind == "command":
            return "the site's command"
        return read_url(self.to).place if self.kind == "url" else f"mail to {self.to}"


def receivers(
    site: NotificationsSection, *, user: str, url: str = "", addresses: str = ""
) -> Iterator[Receiver]:
    """The receivers of a job's notices.

    The site's command and the site's URL get the notices of every job that asks for any. A job's
    own URL gets them if the site allows it. Mail goes to the addresses that the job names, or to
    its user if it names neither an address nor a URL.

    Args:
        site: the site's settings.
        user: of the job.
        url: that the job names.
        addresses: that the job names, with commas between them.
    """
    if site.command:
        yield Receiver("command")
    if site.url:
        yield Receiver("url", site.url)
    if url and is_allowed(read_url(url), map(read_url, site.allowed_urls)):
        yield Receiver("url", url)
    if site.mail_command:
        named = [each.strip() for each in addresses.split(",") if each.strip()]
        for address in named or ([] if url else [user]):
            if _may_be_mailed(site, address):
                yield Receiver("mail", address)


def check_receivers(site: NotificationsSection, url: str, addresses: str) -> None:
    """Refuse receivers that a job may not have.

    Raises:
        BadInput: what is wrong, and what the site allows.
    """
    if url and not is_allowed(read_url(url), map(read_url, site.allowed_urls)):
        allowed = ", ".join(site.allowed_urls) or "none"
        raise BadInput(
            f"notify url: this site allows no such URL as {shorten(url)}; allowed: {allowed}"
        )
    named = [each.strip() for each in addresses.split(",")] if addresses else []
    if len(named) > MOST_ADDRESSES:
        raise BadInput(f"mail user: {len(named)} addresses, at most {MOST_ADDRESSES}")
    for address in named:
        if not _ADDRESS.fullmatch(address):
            raise BadInput(f"mail user: {shorten(address)!r} is not an address")
        if site.mail_command and not _may_be_mailed(site, address):
            known = ", ".join(_domains(site)) or "names without a domain"
            raise BadInput(f"mail user: {address}: this site mails to {known} only")


def _may_be_mailed(site: NotificationsSection, address: str) -> bool:
    """Whether the site mails to an address; one without a domain is of the site itself."""
    domain, allowed = address.partition("@")[2].lower(), _domains(site)
    return not domain or domain in allowed or ANY_DOMAIN in allowed


def _domains(site: NotificationsSection) -> tuple[str, ...]:
    """The domains that a site mails to: as it says, or its own."""
    own = own_domain()
    return site.mail_domains or ((own,) if own else ())


def unheard(site: NotificationsSection, *, notify: str, url: str, addresses: str) -> list[str]:
    """What a job asks for and this site does not do, in words for its user."""
    found = []
    if notify and not any(receivers(site, user="-", url=url, addresses=addresses)):
        found.append(
            "notify: this site sends no notifications, so you will not be told of this job; "
            "the operator sets them up with [notifications]"
        )
    elif addresses and not site.mail_command:
        found.append("mail user: this site sends no mail, so no mail goes to that address")
    if not notify and (url or addresses):
        option = "--notify" if url else "--mail-type"
        found.append(f"notify: no event is named, so nothing is sent; {option} names them")
    return found
