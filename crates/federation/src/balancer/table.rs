//! A table with a value for each node, by its number.

use crate::ids::NodeId;

/// Upper bound, excluded, of nodes' numbers: tables are indexed by them.
pub const NODES_MAX: usize = 65_536;

/// A number that no node can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node {node}: numbers of nodes are below {NODES_MAX}; give it a smaller one")]
pub struct TooLarge {
    pub node: NodeId,
}

/// A value for each node that has joined.
#[derive(Clone, Debug)]
pub struct NodeTable<T> {
    values: Vec<Option<T>>,
    /// The nodes that have joined, by number.
    nodes: Vec<NodeId>,
}

impl<T> Default for NodeTable<T> {
    fn default() -> NodeTable<T> {
        NodeTable {
            values: Vec::new(),
            nodes: Vec::new(),
        }
    }
}

impl<T> NodeTable<T> {
    /// The nodes that have joined, by number.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    pub fn get(&self, node: NodeId) -> Option<&T> {
        self.values.get(node.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut T> {
        self.values.get_mut(node.0 as usize)?.as_mut()
    }

    /// Adds a node; a node that has joined already keeps its value, and the answer is `false`.
    pub fn join(&mut self, node: NodeId, value: T) -> Result<bool, TooLarge> {
        let at = node.0 as usize;
        if at >= NODES_MAX {
            return Err(TooLarge { node });
        }
        if self.values.len() <= at {
            self.values.resize_with(at + 1, || None);
        }
        let Err(place) = self.nodes.binary_search(&node) else {
            return Ok(false);
        };
        self.nodes.insert(place, node);
        self.values[at] = Some(value);
        Ok(true)
    }

    /// Removes a node; `false` if it had not joined.
    pub fn leave(&mut self, node: NodeId) -> bool {
        let Ok(place) = self.nodes.binary_search(&node) else {
            return false;
        };
        self.nodes.remove(place);
        self.values[node.0 as usize] = None;
        true
    }
}
