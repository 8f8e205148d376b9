# Returns the names of hosts that one of Ansible's own variables holds, such as `ansible_play_batch`, as the inventory has them.
# Must never break: `{{ ansible_play_batch }}` expands the templates in a name (ansible-core before 2.19); this expands nothing, and
# marks each name unsafe, so that nothing later does.

from __future__ import annotations

from ansible.plugins.lookup import LookupBase
from ansible.utils.unsafe_proxy import wrap_var

DOCUMENTATION = """
name: names
short_description: names of hosts, not expanded
description:
  - Returns a variable that holds names of hosts, without expanding what they contain.
options:
  _terms:
    description: the variable
    required: true
"""


class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        return [wrap_var(name) for term in terms for name in variables[term]]
